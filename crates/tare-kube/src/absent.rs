//! Stands in for `cluster` without the feature `client`: every call fails.

use serde_json::Value;

use crate::error::KubeError;
use crate::object_kind::Kind;
use crate::which::ClusterSelector;

#[derive(Debug)]
pub struct Cluster {
    pub which: ClusterSelector,
    pub context: Option<String>,
    pub server: String,
    pub namespace: String,
}

fn absent<T>() -> Result<T, KubeError> {
    Err(KubeError::Unreachable("this program was built without Kubernetes".into()))
}

pub fn manifest(_: &str) -> Result<Value, KubeError> {
    absent()
}

impl Cluster {
    pub fn connect(_: &ClusterSelector) -> Result<Self, KubeError> {
        absent()
    }

    #[must_use]
    pub fn impatient(self) -> Self {
        self
    }

    pub fn version(&self) -> Result<String, KubeError> {
        absent()
    }

    pub fn create(&self, _: Kind, _: &str, _: Value) -> Result<Value, KubeError> {
        absent()
    }

    pub fn read(&self, _: Kind, _: &str, _: &str) -> Result<Option<Value>, KubeError> {
        absent()
    }

    pub fn list(&self, _: Kind, _: &str, _: &str) -> Result<Vec<Value>, KubeError> {
        absent()
    }

    pub fn events_of(&self, _: &str, _: &str) -> Result<Vec<Value>, KubeError> {
        absent()
    }

    pub fn events_for(&self, _: &str) -> Result<Vec<Value>, KubeError> {
        absent()
    }

    pub fn delete(&self, _: Kind, _: &str, _: &str, _: Option<&str>) -> Result<bool, KubeError> {
        absent()
    }

    pub fn patch(&self, _: Kind, _: &str, _: &str, _: &Value) -> Result<Value, KubeError> {
        absent()
    }
}
