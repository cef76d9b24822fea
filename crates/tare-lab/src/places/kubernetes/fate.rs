//! Describes what became of a pod.

use serde_json::Value;
use tare_kube::Kind;

use super::ground::ClusterNamespace;

/// State of a pod that is starting.
#[derive(Debug, PartialEq, Eq)]
pub enum PodState {
    Runs,
    /// Not running yet, with the reason if it is known.
    Waits(Option<String>),
    /// Will never run, with the reason.
    Ended(String),
}

/// Reasons that waiting does not resolve.
const HOPELESS: [&str; 5] = [
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "RunContainerError",
];

pub fn standing(pod: &Value, container: &str) -> PodState {
    let status = &pod["status"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(end) = end(pod) {
        return PodState::Ended(end);
    }
    let statuses = ["initContainerStatuses", "containerStatuses"];
    let all = statuses.iter().flat_map(|list| status[*list].as_array().into_iter().flatten());
    for one in all {
        let waiting = &one["state"]["waiting"];
        let (Some(reason), image) = (text(&waiting["reason"]), &one["image"]) else { continue };
        let message = text(&waiting["message"]).map_or(String::new(), |m| format!(": {m}"));
        let image = image.as_str().unwrap_or_default();
        let why = format!("{reason} ({image}){message}");
        if HOPELESS.contains(&reason.as_str()) {
            return PodState::Ended(why);
        }
        if reason != "PodInitializing" && reason != "ContainerCreating" {
            return PodState::Waits(Some(why));
        }
    }
    let own = status["containerStatuses"].as_array().into_iter().flatten();
    let mut own = own.filter(|one| one["name"] == container);
    if own.any(|one| one["state"]["running"].is_object()) && status["podIP"].is_string() {
        return PodState::Runs;
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let unscheduled = conditions
        .filter(|c| c["type"] == "PodScheduled" && c["status"] == "False")
        .find_map(|c| text(&c["message"]));
    PodState::Waits(unscheduled.map(|why| format!("it is not scheduled: {why}")))
}

/// Returns how a pod ended; `None` if it has not.
pub fn end(pod: &Value) -> Option<String> {
    let status = &pod["status"];
    let text = |value: &Value| value.as_str().filter(|t| !t.is_empty()).map(str::to_owned);
    let ended = ["Failed", "Succeeded"].contains(&status["phase"].as_str().unwrap_or_default());
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    let of_containers = containers.filter_map(|one| {
        let end = &one["state"]["terminated"];
        let reason = text(&end["reason"])?;
        let code = end["exitCode"].as_i64().unwrap_or_default();
        let name = one["name"].as_str().unwrap_or_default();
        Some(match reason.as_str() {
            "OOMKilled" => format!("its container {name} ran out of memory (OOMKilled)"),
            _ => format!("its container {name} ended with status {code} ({reason})"),
        })
    });
    let said: Vec<String> = of_containers.collect();
    let own = [text(&status["reason"]), text(&status["message"])];
    let own: Vec<String> = own.into_iter().flatten().collect();
    let all = [own.join(": "), said.join(", ")];
    let all: Vec<String> = all.into_iter().filter(|part| !part.is_empty()).collect();
    (ended || !said.is_empty()).then(|| match all.is_empty() {
        true => "it has ended".into(),
        false => all.join("; "),
    })
}

/// Returns why a pod stopped answering, as far as the cluster knows.
pub fn describe_loss(ground: &ClusterNamespace, name: &str) -> Option<String> {
    let found = ground.cluster.read(Kind::Pod, &ground.namespace, name);
    let pod = match found {
        Err(error) => return Some(error.to_string()),
        Ok(None) => return Some(format!("pod {name} was deleted")),
        Ok(Some(pod)) => pod,
    };
    if let Some(end) = end(&pod) {
        return Some(format!("pod {name}: {end}"));
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return Some(format!("pod {name} is being deleted"));
    }
    let node = pod["spec"]["nodeName"].as_str()?;
    let found = ground.cluster.read(Kind::Node, "", node).ok()??;
    not_ready(&found).or_else(|| is_silent(ground, node))
}

/// Detects a silent node by its lease, which its kubelet renews every 10 s. The cluster marks such
/// a node as not ready much later.
fn is_silent(ground: &ClusterNamespace, node: &str) -> Option<String> {
    let lease = ground.cluster.read(Kind::Lease, LEASES, node).ok()??;
    let renewed = lease["spec"]["renewTime"].as_str()?;
    let age = age_s(renewed, tare_io::time::wall_unix_ms() / 1000)?;
    (age > SILENT_S).then(|| format!("node {node} has not been heard of for {age} s"))
}

const LEASES: &str = "kube-node-lease";
const SILENT_S: u64 = 20;

/// Seconds since `2026-11-23T01:02:03.000000Z`.
pub fn age_s(at: &str, now_unix_s: u64) -> Option<u64> {
    let number = |from: usize, to: usize| at.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let seconds = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    // Days since 1970, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    now_unix_s.checked_sub(u64::try_from(days * 86_400 + seconds).ok()?)
}

/// Returns why a node is not ready; `None` if it is ready.
pub fn not_ready(node: &Value) -> Option<String> {
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    let mut conditions = node["status"]["conditions"].as_array()?.iter();
    let ready = conditions.find(|c| c["type"] == "Ready")?;
    let said = ready["message"].as_str().unwrap_or_default();
    (ready["status"] != "True").then(|| format!("node {name} is not ready: {said}"))
}

/// The newest warning about a pod: failures to create its sandbox are reported nowhere else.
pub fn last_warning(ground: &ClusterNamespace, name: &str) -> Option<String> {
    let events = ground.cluster.events_of(&ground.namespace, name).ok()?;
    let warnings = events.iter().filter(|event| event["type"] == "Warning");
    let newest = warnings.max_by_key(|event| event["lastTimestamp"].as_str().map(str::to_owned))?;
    let reason = newest["reason"].as_str().unwrap_or_default();
    Some(format!("{reason}: {}", newest["message"].as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_are_told_by_what_they_wait_for_and_how_they_ended() {
        let pod = |status: Value| json!({"status": status});
        let waits = |reason: &str, message: &str| {
            pod(json!({"phase": "Pending", "containerStatuses": [{"name": "tare", "image": "i",
                "state": {"waiting": {"reason": reason, "message": message}}}]}))
        };
        let runs = json!({"phase": "Running", "podIP": "10.0.0.1",
                          "containerStatuses": [{"name": "tare", "state": {"running": {}}}]});
        assert_eq!(standing(&pod(runs), "tare"), PodState::Runs);
        let creating = standing(&waits("ContainerCreating", ""), "tare");
        assert_eq!(creating, PodState::Waits(None));
        let pull = standing(&waits("ImagePullBackOff", "no such image"), "tare");
        assert_eq!(pull, PodState::Ended("ImagePullBackOff (i): no such image".into()));
        let first = standing(&waits("ErrImagePull", "try again"), "tare");
        assert_eq!(first, PodState::Waits(Some("ErrImagePull (i): try again".into())));
        let unscheduled = pod(json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]}));
        let why = "it is not scheduled: 0/2 nodes".to_owned();
        assert_eq!(standing(&unscheduled, "tare"), PodState::Waits(Some(why)));
        let oom = pod(json!({"phase": "Failed", "containerStatuses": [{"name": "tare",
            "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}));
        let said = "its container tare ran out of memory (OOMKilled)";
        assert_eq!(standing(&oom, "tare"), PodState::Ended(said.into()));
        let evicted =
            pod(json!({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}));
        assert_eq!(end(&evicted).as_deref(), Some("Evicted: low on disk"));
        assert_eq!(end(&pod(json!({"phase": "Running"}))), None);
    }

    #[test]
    fn times_of_leases_are_read() {
        assert_eq!(age_s("1970-01-01T00:00:00.000000Z", 7), Some(7));
        assert_eq!(age_s("2026-11-23T01:02:03.000000Z", 1_795_395_723 + 30), Some(30));
        assert_eq!(age_s("2024-02-29T12:00:00Z", 1_709_208_000), Some(0));
        assert_eq!(age_s("yesterday", 7), None);
        assert_eq!(age_s("9999-01-01T00:00:00Z", 7), None);
    }
}
