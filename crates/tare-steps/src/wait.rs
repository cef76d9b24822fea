//! Waits of a step: for an HTTP reply, a cluster object, or a command that succeeds.

use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_kube::{Cluster, ClusterSelector, Kind};
use tare_lab::executor::count::fetch_as;
use tare_model::steps::{ObjectKind, Wait};
use tare_model::url::Url;

use crate::shell::Shell;

/// Interval between two checks: success is noticed at most this much later.
const LOOK: Duration = Duration::from_millis(5);
/// Interval between two checks of a cluster, which are less frequent.
const LOOK_AT_CLUSTER: Duration = Duration::from_millis(50);
/// Time limit for one run of a polled command.
const ONCE: DurationNs = DurationNs::from_secs(30);

/// Waits until the condition holds; the error says why it did not in time.
pub fn wait(
    wait: &Wait,
    shell: &Shell,
    within: DurationNs,
    stop: &AtomicBool,
) -> Result<(), String> {
    let limit = monotonic_now() + within;
    let pause = if wait.kubernetes.is_some() { LOOK_AT_CLUSTER } else { LOOK };
    let mut look = look(wait, shell)?;
    loop {
        let why = match look() {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        if stop.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        if monotonic_now() >= limit {
            return Err(format!("not within {within}: {why}"));
        }
        std::thread::park_timeout(pause);
    }
}

/// Checks the condition once; the error says why it does not hold.
pub fn ask_once(wait: &Wait, shell: &Shell) -> Result<(), String> {
    look(wait, shell)?()
}

type Look<'a> = Box<dyn FnMut() -> Result<(), String> + 'a>;

fn look<'a>(wait: &'a Wait, shell: &'a Shell) -> Result<Look<'a>, String> {
    if let Some(script) = &wait.run {
        return Ok(Box::new(move || match shell.run(script, ONCE) {
            done if done.worked => Ok(()),
            done => Err(done.said),
        }));
    }
    if let Some((kind, name)) = wait.object() {
        let kubeconfig = shell.env.get("KUBECONFIG").map(Into::into);
        let which = ClusterSelector { context: wait.context.clone(), kubeconfig };
        let cluster = Cluster::connect(&which).map_err(|error| error.to_string())?;
        let namespace = wait.namespace.clone().unwrap_or_else(|| cluster.namespace.clone());
        return Ok(Box::new(move || {
            let read = cluster.read(kind_of(kind), &namespace, name);
            match read.map_err(|error| error.to_string())? {
                Some(object) => is_ready(kind, &object),
                None => Err(format!("there is no {}", wait.kubernetes.as_deref().unwrap_or(name))),
            }
        }));
    }
    let text = wait.url.as_deref().unwrap_or_default();
    let url = Url::parse(text).map_err(|why| format!("url {text}: {why}"))?;
    if url.tls {
        return Err(format!(
            "url {text}: it is waited for by plain HTTP; run = \"curl …\" has TLS"
        ));
    }
    Ok(Box::new(move || answers(wait, &url)))
}

fn kind_of(kind: ObjectKind) -> Kind {
    match kind {
        ObjectKind::Deployment => Kind::Deployment,
        ObjectKind::StatefulSet => Kind::StatefulSet,
        ObjectKind::Pod => Kind::Pod,
        ObjectKind::Job => Kind::Job,
    }
}

/// A deployment is not ready until its controller has observed the newest definition.
fn is_ready(kind: ObjectKind, object: &Value) -> Result<(), String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    match kind {
        ObjectKind::Deployment | ObjectKind::StatefulSet => {
            let wanted = spec["replicas"].as_u64().unwrap_or(1);
            let fresh =
                number(&status["observedGeneration"]) >= number(&object["metadata"]["generation"]);
            let (ready, updated) =
                (number(&status["readyReplicas"]), number(&status["updatedReplicas"]));
            match fresh
                && ready >= wanted
                && updated >= wanted
                && number(&status["replicas"]) == wanted
            {
                true => Ok(()),
                false => Err(format!("{ready} of {wanted} replicas are ready")),
            }
        }
        ObjectKind::Pod => {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            match conditions
                .into_iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
            {
                true => Ok(()),
                false => Err("it is not ready".into()),
            }
        }
        ObjectKind::Job => {
            let wanted = spec["completions"].as_u64().unwrap_or(1);
            match number(&status["succeeded"]) {
                done if done >= wanted => Ok(()),
                done => Err(format!("{done} of {wanted} runs have succeeded")),
            }
        }
    }
}

fn answers(wait: &Wait, url: &Url) -> Result<(), String> {
    let found = (url.host.as_str(), url.port).to_socket_addrs();
    let address = found.ok().and_then(|mut all| all.next());
    let address = address.ok_or_else(|| format!("{} is not known", url.host))?;
    let host = wait.host.clone().unwrap_or_else(|| url.host_header());
    let page = fetch_as(address, &host, &url.target);
    let page = page.ok_or_else(|| format!("no answer from {address}"))?;
    let status: Option<u16> = page.split(' ').nth(1).and_then(|word| word.parse().ok());
    let wanted = wait.status.unwrap_or(200);
    if status != Some(wanted) {
        let status = status.map_or("no status".to_owned(), |status| status.to_string());
        return Err(format!("it answers with {status}, not {wanted}"));
    }
    let body = page.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    match &wait.body {
        Some(text) if !body.contains(text.as_str()) => {
            Err(format!("{text:?} is not in its answer"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_ready_when_all_of_the_newest_is() {
        let deployment = |seen: u64, ready: u64, all: u64| {
            json!({
                "metadata": {"generation": 2}, "spec": {"replicas": 2},
                "status": {"observedGeneration": seen, "replicas": all, "readyReplicas": ready,
                           "updatedReplicas": 2},
            })
        };
        let of = |object: &Value| is_ready(ObjectKind::Deployment, object).is_ok();
        assert!(of(&deployment(2, 2, 2)));
        assert!(!of(&deployment(1, 2, 2)), "an older definition's");
        assert!(!of(&deployment(2, 1, 2)) && !of(&deployment(2, 2, 3)));
        let pod = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert!(is_ready(ObjectKind::Pod, &pod).is_ok());
        assert!(is_ready(ObjectKind::Pod, &json!({})).is_err());
        let job = |runs: u64| json!({"spec": {"completions": runs}, "status": {"succeeded": 1}});
        assert!(is_ready(ObjectKind::Job, &job(1)).is_ok());
        assert!(is_ready(ObjectKind::Job, &job(2)).is_err());
    }
}
