//! An object of a Kubernetes cluster.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, owned};
use tare_kube::{Cluster, ClusterSelector, Kind};

use crate::journal::prefix::{OURS, is_ours};
use crate::journal::removal::{Removal, Removed};
use crate::machine::commands;

/// How long to wait until a pod is gone; other kinds are not waited for.
const GONE_WITHIN: DurationNs = DurationNs::from_secs(20);
const LOOK: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterObject {
    pub which: ClusterSelector,
    pub kind: String,
    pub namespace: String,
    pub name: String,
}

impl ClusterObject {
    pub fn new(cluster: &Cluster, kind: Kind, namespace: &str, name: &str) -> Self {
        // `tare clean` may run with another kubeconfig than this run.
        let given = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty());
        let one = given.map(PathBuf::from).filter(|path| path.is_file());
        let one = one.and_then(|path| std::path::absolute(path).ok());
        let kubeconfig = cluster.which.kubeconfig.clone().or(one);
        let which = ClusterSelector { kubeconfig, context: cluster.context.clone() };
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { which, kind: kind.name().to_owned(), namespace, name }
    }

    fn words(&self) -> String {
        let kind = self.kind.to_lowercase();
        match self.namespace.as_str() {
            "" => format!("{kind} {}", self.name),
            namespace => format!("{kind} {namespace}/{}", self.name),
        }
    }
}

impl Removal for ClusterObject {
    fn remove(&self) -> Removed {
        let Self { which, kind, namespace, name } = self;
        let Some(kind) = Kind::parse(kind).filter(|_| is_ours(name)) else { return Ok(None) };
        let cannot = |why: String| format!("cannot remove {}: {why}", self.words());
        // A kubeconfig may name programs to run, so nobody else may be able to write it.
        if let Some(path) = &which.kubeconfig {
            owned::check(path).map_err(|error| cannot(error.to_string()))?;
        }
        let cluster = Cluster::connect(which).map_err(|error| cannot(error.to_string()))?;
        let found = cluster.read(kind, namespace, name).map_err(|e| cannot(e.to_string()))?;
        // An object of the same name without our label is not removed.
        let is_labelled = |o: &serde_json::Value| o["metadata"]["labels"][OURS.0] == OURS.1;
        let Some(object) = found.filter(is_labelled) else { return Ok(None) };
        let is_going = object["metadata"]["deletionTimestamp"].is_string();
        let gone = || {
            let limit = monotonic_now() + commands::remaining_time(GONE_WITHIN);
            while kind == Kind::Pod && monotonic_now() < limit {
                if !matches!(cluster.read(kind, namespace, name), Ok(Some(_))) {
                    return;
                }
                std::thread::park_timeout(LOOK);
            }
        };
        if is_going {
            gone();
            return Ok(None);
        }
        let uid = object["metadata"]["uid"].as_str();
        match cluster.delete(kind, namespace, name, uid) {
            Ok(true) => {
                gone();
                Ok(Some(self.words()))
            }
            Ok(false) => Ok(None),
            Err(error) => Err(cannot(error.to_string())),
        }
    }

    fn ends_with_the_boot(&self) -> bool {
        false
    }
}
