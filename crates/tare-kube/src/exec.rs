//! Runs a program in a pod with this process's standard streams.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cluster::Cluster;
use crate::error::{KubeError, in_words, line};
use crate::which::ClusterSelector;

/// The program to run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    pub which: ClusterSelector,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub argv: Vec<String>,
    /// The program knows how much to read, so its standard input is left open.
    pub ends_itself: bool,
}

/// Size of the buffer of each stream, in bytes.
const BUFFER: usize = 64 << 10;
const MEMORY_MAX: u64 = 512 << 20;
/// Timeout for the start of the program.
const BEGINS_WITHIN: Duration = Duration::from_secs(20);
/// Timeout for the program's remaining output, once its standard input has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
const JOINS_WITHIN: Duration = Duration::from_secs(2);

/// Runs the program to its end, and returns its exit status.
pub fn run(exec: &Exec) -> Result<i32, KubeError> {
    // The other end can make this process queue pongs without end. This limit ends the stream first.
    let limit = Rlimit { current: Some(MEMORY_MAX), maximum: Some(MEMORY_MAX) };
    let _ = setrlimit(Resource::Data, limit);
    let cluster = Cluster::connect(&exec.which)?;
    let ended = cluster.runtime.block_on(carry(&cluster, exec));
    // A thread may still wait for standard input.
    cluster.runtime.shutdown_background();
    ended
}

async fn carry(cluster: &Cluster, exec: &Exec) -> Result<i32, KubeError> {
    let Exec { namespace, pod, container, argv, .. } = exec;
    let refused = |why: String| KubeError::Refused {
        verb: "exec",
        what: format!("pods/{pod} in namespace {namespace}"),
        why,
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
    let how = AttachParams::default()
        .container(container)
        .stdin(true)
        .stdout(true)
        .stderr(true)
        .max_stdin_buf_size(BUFFER)
        .max_stdout_buf_size(BUFFER);
    let begun = tokio::time::timeout(BEGINS_WITHIN, pods.exec(pod, argv, &how)).await;
    let begun = begun.map_err(|_| refused(format!("no answer within {BEGINS_WITHIN:?}")))?;
    let mut process = begun.map_err(|error| match in_words(&error) {
        why if why.contains("403 Forbidden") => KubeError::Forbidden {
            verb: "exec",
            what: format!("pods/exec in namespace {namespace}"),
            why: format!("it takes get and create ({why})"),
        },
        why => refused(why),
    })?;
    let ends = (process.stdin(), process.stdout(), process.stderr(), process.take_status());
    let (Some(mut to), Some(mut out), Some(mut err), Some(status)) = ends else {
        return Err(refused("it has no streams".into()));
    };
    let saying = async {
        let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut to).await;
        let _ = to.flush().await;
        if exec.ends_itself {
            std::future::pending::<()>().await;
        }
        let _ = to.shutdown().await;
        drop(to);
        tokio::time::sleep(ENDS_WITHIN).await;
    };
    let hearing = async {
        let stdout = tokio::io::stdout();
        tokio::join!(pass_on(&mut out, stdout), pass_on(&mut err, tokio::io::stderr()));
        status.await
    };
    let status = tokio::select! {
        () = saying => None,
        status = hearing => status,
    };
    match status {
        Some(status) if status.status.as_deref() == Some("Success") => Ok(0),
        Some(status) => {
            let message = status.message.unwrap_or_default();
            let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
            let code = causes.iter().find(|c| c.reason.as_deref() == Some("ExitCode"));
            match code.and_then(|code| code.message.as_ref()?.parse().ok()) {
                Some(code) => Ok(code),
                None => Err(refused(line(&message))),
            }
        }
        None => {
            // Close the streams first, or `join` would wait for them to be read.
            drop((out, err));
            process.abort();
            match tokio::time::timeout(JOINS_WITHIN, process.join()).await {
                Ok(Err(error)) => Err(refused(format!("the stream was cut: {}", in_words(&error)))),
                _ => Err(refused("the stream was cut".into())),
            }
        }
    }
}

/// Forwards everything as soon as it arrives.
async fn pass_on(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    mut to: impl tokio::io::AsyncWrite + Unpin,
) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(n) = from.read(&mut buffer).await {
        if n == 0 || to.write_all(&buffer[..n]).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
}
