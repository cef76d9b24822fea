//! A run's plan as its report shows it: with the settings that its first rounds determined.

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use tare_model::calibration::Calibration;
use tare_model::plan::PlanParts;

/// In JSON, `found` is a key of `slices`.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownPlan {
    pub parts: PlanParts,
    pub found: Option<Calibration>,
}

impl ShownPlan {
    pub fn json(&self) -> Result<Value, serde_json::Error> {
        let mut plan = serde_json::to_value(&self.parts)?;
        let slices = plan.get_mut("slices").and_then(Value::as_object_mut);
        if let (Some(slices), Some(found)) = (slices, &self.found) {
            slices.insert("found".into(), serde_json::to_value(found)?);
        }
        Ok(plan)
    }
}

impl Serialize for ShownPlan {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.json().map_err(S::Error::custom)?.serialize(to)
    }
}

impl<'de> Deserialize<'de> for ShownPlan {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut plan = Value::deserialize(from)?;
        let slices = plan.get_mut("slices").and_then(Value::as_object_mut);
        let found = slices.and_then(|slices| slices.remove("found"));
        let found = found.map(serde_json::from_value).transpose().map_err(D::Error::custom)?;
        let parts = serde_json::from_value(plan).map_err(D::Error::custom)?;
        Ok(Self { parts, found })
    }
}
