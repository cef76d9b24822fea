//! A program in a pod, whose standard streams are this process's own.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cluster::Cluster;
use crate::error::{KubeError, in_words, line};
use crate::which::Which;

/// What is run where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    pub which: Which,
    pub namespace: String,
    pub pod: String,
    pub container: String,
    pub argv: Vec<String>,
    /// It is not told that its standard input has ended: it knows how much it will read.
    pub ends_itself: bool,
}

/// Of each stream, between this process and the cluster.
const BUFFER: usize = 64 << 10;
const MEMORY_MAX: u64 = 512 << 20;
/// How long it may take to begin.
const BEGINS_WITHIN: Duration = Duration::from_secs(20);
/// How long what it has still to say may take, once it was told that nothing more comes.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
const JOINS_WITHIN: Duration = Duration::from_secs(2);

/// Runs it to its end; its exit status.
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
            // Whoever waits for its end must not hold what it would be heard by.
            drop((out, err));
            process.abort();
            match tokio::time::timeout(JOINS_WITHIN, process.join()).await {
                Ok(Err(error)) => Err(refused(format!("the stream was cut: {}", in_words(&error)))),
                _ => Err(refused("the stream was cut".into())),
            }
        }
    }
}

/// Whatever comes is said at once.
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
