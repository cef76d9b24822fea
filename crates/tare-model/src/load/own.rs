//! The keys of `[load]` that a variant may override: HTTP version, connections, streams.

use serde::{Deserialize, Serialize};

use super::{HTTP_1, Load, LoadSpec};
use crate::Invalid;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnLoad {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
}

impl OwnLoad {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the load with these keys in place of its own.
    pub fn applied_to(&self, load: &Load) -> Result<Load, Invalid> {
        if self.is_empty() {
            return Ok(load.clone());
        }
        let mut spec = LoadSpec::from(load.clone());
        if let Some(http) = &self.http {
            spec.http = Some(http.clone());
            if http == HTTP_1 {
                (spec.streams, spec.no_hpack_table) = (None, false);
            }
        }
        spec.connections = self.connections.or(spec.connections);
        spec.streams = self.streams.or(spec.streams);
        Load::try_from(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Version;

    #[test]
    fn a_variant_may_divide_the_same_concurrency_differently() {
        let load = |keys: &str| Load::try_from(serde_json::from_str::<LoadSpec>(keys).unwrap());
        let own = |keys: &str| serde_json::from_str::<OwnLoad>(keys).unwrap();
        let base = load(r#"{"connections": 100, "http": "2", "no_hpack_table": true}"#).unwrap();
        let divided = own(r#"{"connections": 10, "streams": 10}"#).applied_to(&base).unwrap();
        assert_eq!((divided.connections, divided.streams()), (10, 10));
        assert_eq!(divided.most_in_flight(), base.most_in_flight());
        let other = own(r#"{"http": "1.1"}"#).applied_to(&divided).unwrap();
        assert_eq!((other.connections, other.http().unwrap().version), (10, Version::Http1));
        assert_eq!(own("{}").applied_to(&base), Ok(base.clone()));
        let why = own(r#"{"http": "1.1", "streams": 4}"#).applied_to(&base).unwrap_err();
        assert!(why.0.contains("streams goes with http"), "{}", why.0);
    }
}
