//! Counts the images that cluster nodes start containers from, as kubelets report them in events.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use tare_kube::{Cluster, ClusterSelector};
use tare_model::steps::Images;

use crate::shell::Shell;

/// Reason of kubelet events about an image, whether pulled or already present.
const REASON: &str = "Pulled";

/// The clusters, and the events that each had at the start.
pub struct Nodes(Vec<(Cluster, Said)>);

/// How often each event was seen, by its UID.
type Said = HashMap<String, u64>;

impl Nodes {
    /// Connects to the clusters and reads their current events; `None` without contexts.
    pub fn snapshot(contexts: &[String], shell: &Shell) -> Result<Option<Self>, String> {
        let look = |context: &String| {
            let kubeconfig = shell.env.get("KUBECONFIG").map(Into::into);
            let which = ClusterSelector { context: Some(context.clone()), kubeconfig };
            let cluster = Cluster::connect(&which).map_err(|error| cannot(context, error))?;
            let events = cluster.events_for(REASON).map_err(|error| cannot(context, error))?;
            let said = events.iter().map(|event| (identity(event), times(event))).collect();
            Ok((cluster, said))
        };
        let all: Result<Vec<_>, String> = contexts.iter().map(look).collect();
        all.map(|all| (!all.is_empty()).then_some(Self(all)))
    }

    /// Counts the images in events since [`Nodes::snapshot`].
    pub fn images(self) -> Result<Images, String> {
        let mut names = BTreeSet::new();
        let mut images = Images { pulled_bytes: Some(0), ..Images::default() };
        for (cluster, before) in &self.0 {
            let context = cluster.which.context.as_deref().unwrap_or_default();
            for event in cluster.events_for(REASON).map_err(|error| cannot(context, error))? {
                let seen = before.get(&identity(&event)).copied().unwrap_or(0);
                let times = times(&event).saturating_sub(seen);
                let message = event["message"].as_str().unwrap_or_default();
                let Some(told) = ImageEvent::parse(message).filter(|_| times > 0) else { continue };
                names.insert(told.image.to_owned());
                if told.is_pulled {
                    images.pulled += times as u32;
                    images.pulled_bytes = images
                        .pulled_bytes
                        .zip(told.bytes)
                        .map(|(all, bytes)| all.saturating_add(bytes.saturating_mul(times)));
                }
            }
        }
        images.used = names.len() as u32;
        Ok(images)
    }
}

fn cannot(context: &str, error: impl std::fmt::Display) -> String {
    format!("images of {context} cannot be counted: {error}")
}

fn identity(event: &Value) -> String {
    event["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Returns how often an event occurred; a repeated event is the same object with a higher count.
fn times(event: &Value) -> u64 {
    event["count"].as_u64().unwrap_or(1).clamp(1, 1_000_000)
}

/// A kubelet's message about the image of a container that it is about to create.
#[derive(Debug, PartialEq, Eq)]
struct ImageEvent<'a> {
    image: &'a str,
    is_pulled: bool,
    /// `None` from kubelets before 1.30.
    bytes: Option<u64>,
}

impl<'a> ImageEvent<'a> {
    fn parse(message: &'a str) -> Option<Self> {
        let (before, rest) = message.split_once('"')?;
        let (image, after) = rest.split_once('"')?;
        let is_pulled = before.starts_with("Successfully pulled image");
        if !is_pulled && !before.starts_with("Container image") {
            return None;
        }
        let size = after.split_once("Image size: ").and_then(|(_, size)| size.split(' ').next());
        Some(Self { image, is_pulled, bytes: size.and_then(|size| size.parse().ok()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_tell_of_images_in_these_words() {
        let there = "Container image \"docker.io/library/nginx:1\" already present on machine";
        let told = ImageEvent::parse(there).unwrap();
        assert_eq!((told.image, told.is_pulled), ("docker.io/library/nginx:1", false));
        let pulled = "Successfully pulled image \"nginx\" in 1.2s (1.5s including waiting). Image \
                      size: 62706233 bytes.";
        let wanted = ImageEvent { image: "nginx", is_pulled: true, bytes: Some(62_706_233) };
        assert_eq!(ImageEvent::parse(pulled), Some(wanted));
        let old = ImageEvent::parse("Successfully pulled image \"nginx\" in 1.2s").unwrap();
        assert!(old.is_pulled && old.bytes.is_none());
        for other in ["", "Successfully pulled image", "Something \"x\" else", "\"x\""] {
            assert_eq!(ImageEvent::parse(other), None, "{other}");
        }
    }
}
