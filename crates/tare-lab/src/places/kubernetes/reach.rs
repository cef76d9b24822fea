//! Getting into a pod: waiting until it runs, the agent copied in, a program run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_kube::Kind;
use tare_model::plain;

use super::fate::{self, Standing};
use super::ground::{Ground, MADE_AS, kube};
use super::pod::AGENT;
use crate::commands::{self, must};
use crate::error::LabError;
use crate::places::agent_file;
use crate::programs;

/// Of the agent, once its pod runs.
pub const HELLO_WITHIN: DurationNs = DurationNs::from_secs(30);
const COPY_WITHIN: DurationNs = DurationNs::from_secs(60);
pub const LOOK: Duration = Duration::from_millis(150);

/// The names of a Job's pods, in the order of their numbers.
pub fn pods_of(
    ground: &Ground,
    job: &str,
    n: usize,
    limit: Instant,
    stop: &AtomicBool,
) -> Result<Vec<String>, LabError> {
    let labels = format!("{}={job}", MADE_AS);
    loop {
        let pods = ground.cluster.list(Kind::Pod, &ground.namespace, &labels);
        let mut pods = pods.map_err(kube)?;
        let number = |pod: &Value| {
            let index = &pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"];
            index.as_str().and_then(|index| index.parse::<u32>().ok())
        };
        pods.sort_by_key(number);
        if pods.len() == n {
            let name = |pod: &Value| pod["metadata"]["name"].as_str().map(str::to_owned);
            return Ok(pods.iter().filter_map(name).collect());
        }
        let why = match () {
            () if stop.load(Ordering::Relaxed) || commands::is_stopped() => {
                "interrupted".to_owned()
            }
            () if monotonic_now() > limit => {
                let why = fate::last_warning(ground, job);
                let why = why.map_or(String::new(), |why| format!(": {}", plain::short(&why, 300)));
                format!("it has {} of {n} pods{why}", pods.len())
            }
            () => {
                std::thread::park_timeout(LOOK);
                continue;
            }
        };
        return Err(LabError::Environment(format!("job {job} did not start: {why}")));
    }
}

/// Into a container that waits for it.
pub fn copy_agent(ground: &Ground, pod: &str, container: &str) -> Result<(), LabError> {
    let agent = agent_file::find()?;
    let bytes = std::fs::metadata(&agent).map_err(|e| LabError::file("read", &agent, e))?.len();
    // Written whole before it bears its name: the pod waits for that.
    let there = format!(
        "umask 077; head -c {bytes} >{AGENT}.part && chmod 700 {AGENT}.part && mv {AGENT}.part {AGENT}"
    );
    let script = "exec \"$@\" <\"$0\"";
    let mut argv = vec!["sh".to_owned(), "-c".into(), script.into()];
    argv.push(agent.display().to_string());
    argv.extend(exec(ground, pod, container, true, &["/bin/sh", "-c", &there])?);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    must(&argv, COPY_WITHIN, "copy the agent into a pod").map(drop)
}

/// The command line of the process that carries a program's streams.
pub fn exec(
    ground: &Ground,
    pod: &str,
    container: &str,
    ends_itself: bool,
    argv: &[&str],
) -> Result<Vec<String>, LabError> {
    let own = programs::own()?.display().to_string();
    let mut all =
        [&own, "kubernetes", "exec", "--namespace", &ground.namespace].map(str::to_owned).to_vec();
    if let Some(context) = &ground.cluster.context {
        all.extend(["--context".to_owned(), context.clone()]);
    }
    all.extend(ends_itself.then(|| "--ends-itself".to_owned()));
    all.extend(["--pod", pod, "--container", container, "--"].map(str::to_owned));
    all.extend(argv.iter().map(|word| (*word).to_owned()));
    Ok(all)
}

/// Waits until a pod runs, or will not.
pub fn wait(
    ground: &Ground,
    name: &str,
    container: &str,
    within: DurationNs,
    stop: &AtomicBool,
) -> Result<Value, LabError> {
    let no = |why: String| {
        let why = plain::short(&why, WHY_CHARS_MAX);
        Err(LabError::Environment(format!("pod {name} did not start: {why}")))
    };
    let limit = monotonic_now() + within;
    loop {
        let Some(pod) = ground.read(Kind::Pod, name)? else {
            return no("it was deleted".into());
        };
        let why = match fate::standing(&pod, container) {
            Standing::Runs => return Ok(pod),
            Standing::Ended(why) => return no(why),
            Standing::Waits(why) => why,
        };
        if stop.load(Ordering::Relaxed) || commands::is_stopped() {
            return no("interrupted".into());
        }
        if monotonic_now() > limit {
            let why = why.or_else(|| fate::last_warning(ground, name));
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            return no(format!("it does not run after {within} (start_within){why}"));
        }
        std::thread::park_timeout(LOOK);
    }
}

const WHY_CHARS_MAX: usize = 600;
