//! Values as people write them: `"10s"`, `"io_uring"`.

use serde::{Deserialize, Deserializer, Serializer};

pub mod duration {
    use super::{Deserialize, Deserializer, Serializer};
    use tare_io::DurationNs;

    pub fn serialize<S: Serializer>(value: &DurationNs, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DurationNs, D::Error> {
        let text = super::TextOrNumber::deserialize(from)?.text("s")?;
        positive(&text).map_err(serde::de::Error::custom)
    }

    pub fn positive(text: &str) -> Result<DurationNs, String> {
        match DurationNs::parse(text).map_err(|error| error.to_string())? {
            DurationNs::ZERO => Err(format!("'{text}' must be longer than 0")),
            duration => Ok(duration),
        }
    }
}

pub mod optional_duration {
    use super::{Deserialize, Deserializer, Serializer};
    use tare_io::DurationNs;

    pub fn serialize<S: Serializer>(value: &Option<DurationNs>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<DurationNs>, D::Error> {
        let written = Option::<super::TextOrNumber>::deserialize(from)?;
        let text = written.map(|written| written.text("s")).transpose()?;
        let parsed = text.map(|text| super::duration::positive(&text)).transpose();
        parsed.map_err(serde::de::Error::custom)
    }
}

/// A rate as a number, or as the flag takes it: `"10k"`.
pub mod optional_rate {
    use super::{Deserialize, Deserializer};

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "write a rate as 5000, \"10k\" or \"1.5M\"")]
    enum Rate {
        Number(f64),
        Text(String),
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        match Option::<Rate>::deserialize(from)? {
            None => Ok(None),
            Some(Rate::Number(rate)) => Ok(Some(rate)),
            Some(Rate::Text(text)) => {
                super::si_number(&text).map(Some).map_err(serde::de::Error::custom)
            }
        }
    }
}

/// An optional duration for places without a field to put an attribute on.
#[derive(Deserialize)]
pub struct OptionalDuration(#[serde(with = "optional_duration")] pub Option<tare_io::DurationNs>);

/// A value that needs a unit but may have been written without one.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum TextOrNumber {
    Text(String),
    Number(f64),
}

impl TextOrNumber {
    pub fn text<E: serde::de::Error>(self, unit: &str) -> Result<String, E> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Number(n) => Err(E::custom(format!("{n} has no unit: write \"{n}{unit}\""))),
        }
    }
}

pub mod reactor {
    use super::{Deserialize, Deserializer, Serializer};
    use tare_io::ReactorKind;

    pub fn serialize<S: Serializer>(value: &Option<ReactorKind>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_str(value.name()),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<ReactorKind>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let parsed = text.map(|text| super::parse_reactor(&text)).transpose();
        parsed.map_err(serde::de::Error::custom)
    }
}

/// Reads `1000`, `10k`, `1.5M`.
pub fn si_number(text: &str) -> Result<f64, String> {
    let bad = || format!("'{text}' is not a number; write 5000, 10k or 1.5M");
    let (digits, scale) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1e6),
            None => (text, 1.0),
        },
    };
    let number: f64 = digits.parse().map_err(|_| bad())?;
    if number.is_finite() && number >= 0.0 { Ok(number * scale) } else { Err(bad()) }
}

pub fn parse_reactor(text: &str) -> Result<tare_io::ReactorKind, String> {
    match text {
        "io_uring" | "uring" => Ok(tare_io::ReactorKind::IoUring),
        "epoll" => Ok(tare_io::ReactorKind::Epoll),
        _ => Err("choose io_uring or epoll".into()),
    }
}
