//! Calls to a cluster's API.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use http::Response;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::client::{ClientBuilder, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config, Error};
use serde_json::Value;
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, owned};
use tokio::runtime::Runtime;
use tower::util::MapResponseLayer;

use crate::bounded::{Allowance, Bounded};
use crate::error::{KubeError, in_words, line};
use crate::object_kind::Kind;
use crate::which::ClusterSelector;

/// A connection to a cluster.
pub struct Cluster {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    allowance: Allowance,
    /// How long a call is retried.
    tries: DurationNs,
    pub which: ClusterSelector,
    /// The context in use, even if none was named: the current one may change later.
    pub context: Option<String>,
    /// Its address, for messages.
    pub server: String,
    /// The context's default namespace.
    pub namespace: String,
}

/// Timeout of one attempt.
const CALL: Duration = Duration::from_secs(10);
/// Timeout of a call with all its retries.
const TRIES: DurationNs = DurationNs::from_secs(30);
/// Marks the error that an object exists because an earlier attempt created it.
const LOST: &str = ", by a try whose answer was lost";
const PAUSE: Duration = Duration::from_millis(500);
/// Objects per page.
const PAGE: u32 = 250;
const OBJECTS_MAX: usize = 20_000;
const LIST_WITHIN: DurationNs = DurationNs::from_secs(60);

type Objects = Api<DynamicObject>;

impl Cluster {
    pub fn connect(which: &ClusterSelector) -> Result<Self, KubeError> {
        let runtime = runtime()?;
        let (config, context) = runtime.block_on(config(which))?;
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = config.default_namespace.clone();
        let allowance = Allowance::default();
        allowance.refill();
        let client = {
            let _within = runtime.enter();
            let builder = ClientBuilder::try_from(config);
            let builder = builder.map_err(|error| KubeError::Usage(in_words(&error)))?;
            let allowance = allowance.clone();
            let bounded = MapResponseLayer::new(move |answer: Response<Box<DynBody>>| {
                answer.map(|body| Bounded { body, allowance: allowance.clone() })
            });
            builder.with_layer(&bounded).build()
        };
        let (which, tries) = (which.clone(), TRIES);
        Ok(Self { runtime, client, allowance, tries, which, context, server, namespace })
    }

    /// Turns retries off.
    #[must_use]
    pub fn impatient(mut self) -> Self {
        self.tries = DurationNs::ZERO;
        self
    }

    /// Returns the server's version: the cheapest call there is.
    pub fn version(&self) -> Result<String, KubeError> {
        self.allowance.refill();
        let answer = self.with_retries("ask", "the cluster's version", false, || async {
            self.client.apiserver_version().await
        })?;
        Ok(answer.git_version)
    }

    pub fn create(
        &self,
        kind: Kind,
        namespace: &str,
        mut object: Value,
    ) -> Result<Value, KubeError> {
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.name().into();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let what = what(kind, namespace, &name);
        let typed: DynamicObject = serde_json::from_value(object)
            .map_err(|error| KubeError::Usage(format!("{what}: {error}")))?;
        let api = self.api(kind, namespace);
        let made = self.with_retries("create", &what, true, || api.create(&POST, &typed));
        match made {
            // Names are unique to this run, so the object is ours.
            Err(KubeError::Refused { why, .. }) if why.contains(LOST) => {
                value(&self.with_retries("get", &what, false, || api.get(&name))?)
            }
            made => value(&made?),
        }
    }

    /// Returns an object; `None` if there is no such one.
    pub fn read(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, KubeError> {
        let api = self.api(kind, namespace);
        let what = what(kind, namespace, name);
        self.with_retries("get", &what, false, || api.get_opt(name))?
            .as_ref()
            .map(value)
            .transpose()
    }

    /// Returns all objects with these labels, in all namespaces if `namespace` is empty.
    pub fn list(&self, kind: Kind, namespace: &str, labels: &str) -> Result<Vec<Value>, KubeError> {
        self.list_all(kind, namespace, ListParams::default().labels(labels))
    }

    /// Returns the events about one object.
    pub fn events_of(&self, namespace: &str, name: &str) -> Result<Vec<Value>, KubeError> {
        let asked = ListParams::default().fields(&format!("involvedObject.name={name}"));
        self.list_all(Kind::Event, namespace, asked)
    }

    /// Returns the events with one reason, in all namespaces.
    pub fn events_for(&self, reason: &str) -> Result<Vec<Value>, KubeError> {
        self.list_all(Kind::Event, "", ListParams::default().fields(&format!("reason={reason}")))
    }

    /// Lists page by page, within one call's allowance.
    fn list_all(
        &self,
        kind: Kind,
        namespace: &str,
        asked: ListParams,
    ) -> Result<Vec<Value>, KubeError> {
        let api = self.api(kind, namespace);
        let what = what(kind, namespace, "");
        let mut asked = asked.limit(PAGE);
        let mut all = Vec::new();
        let limit = monotonic_now() + LIST_WITHIN;
        while monotonic_now() < limit && all.len() < OBJECTS_MAX {
            let page = self.with_retries("list", &what, false, || api.list(&asked))?;
            let is_empty = page.items.is_empty();
            for object in page.items {
                all.push(value(&object)?);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                None => return Ok(all),
                Some(token) if !is_empty => asked = asked.continue_token(&token),
                Some(_) => break,
            }
        }
        let why = format!("its pages do not end within {LIST_WITHIN} and {OBJECTS_MAX} objects");
        Err(KubeError::Refused { verb: "list", what, why })
    }

    /// Deletes an object and returns whether it existed. `uid` protects others of the same name.
    pub fn delete(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<bool, KubeError> {
        let api = self.api(kind, namespace);
        let preconditions =
            uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let how = DeleteParams { preconditions, ..DeleteParams::background() };
        let what = what(kind, namespace, name);
        match self.with_retries("delete", &what, false, || opt(api.delete(name, &how))) {
            Ok(found) => Ok(found.is_some()),
            // Another object has this name by now.
            Err(KubeError::Refused { why, .. }) if uid.is_some() && why.contains("UID") => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Applies a merge patch.
    pub fn patch(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, KubeError> {
        let api = self.api(kind, namespace);
        let (how, patch) = (PatchParams::default(), Patch::Merge(patch));
        let what = what(kind, namespace, name);
        value(&self.with_retries("patch", &what, false, || api.patch(name, &how, &patch))?)
    }

    /// Returns the API for one call, which starts with a full allowance.
    fn api(&self, kind: Kind, namespace: &str) -> Objects {
        self.allowance.refill();
        let resource = resource(kind);
        match kind.is_namespaced() && !namespace.is_empty() {
            true => Api::namespaced_with(self.client.clone(), namespace, &resource),
            false => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Retries until there is an answer or a timeout: servers restart, and may be busy.
    fn with_retries<T, F>(
        &self,
        verb: &'static str,
        what: &str,
        creates: bool,
        call: impl Fn() -> F,
    ) -> Result<T, KubeError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let limit = monotonic_now() + self.tries;
        let mut again = false;
        loop {
            let answer = self.runtime.block_on(async { tokio::time::timeout(CALL, call()).await });
            let why = match answer {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(Error::Api(status))) => {
                    let (what, why) = (what.to_owned(), line(&status.message));
                    match status.code {
                        429 | 500 | 503 | 504 => why,
                        403 if !is_about_quota(&why) => {
                            return Err(KubeError::Forbidden { verb, what, why });
                        }
                        // An earlier attempt may have created it, and only its answer was lost.
                        409 if creates && again => {
                            let why = format!("{why}{LOST}");
                            return Err(KubeError::Refused { verb, what, why });
                        }
                        _ => return Err(KubeError::Refused { verb, what, why }),
                    }
                }
                // A retry would fail in the same way.
                Ok(Err(error)) if self.allowance.is_used_up() || is_final(&error) => {
                    let (what, why) = (what.to_owned(), in_words(&error));
                    return Err(KubeError::Refused { verb, what, why });
                }
                Ok(Err(error)) => in_words(&error),
                Err(_) => format!("no answer within {} s", CALL.as_secs()),
            };
            if monotonic_now() > limit {
                let server = &self.server;
                return Err(KubeError::Unreachable(format!(
                    "cannot {verb} {what}: {server} does not answer: {why}"
                )));
            }
            again = true;
            self.runtime.block_on(async { tokio::time::sleep(PAUSE).await });
        }
    }
}

fn resource(kind: Kind) -> ApiResource {
    ApiResource {
        group: kind.group().to_owned(),
        version: kind.version().to_owned(),
        api_version: kind.api_version(),
        kind: kind.name().to_owned(),
        plural: kind.plural().to_owned(),
    }
}

/// Whether a retry cannot help: an invalid request, or an answer that is not Kubernetes's.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::BuildRequest(_) | Error::HttpError(_) | Error::SerdeError(_) | Error::FromUtf8(_)
    )
}

/// An exceeded quota has the same status code as a missing right.
fn is_about_quota(message: &str) -> bool {
    message.contains("exceeded quota") || message.contains("failed quota")
}

const POST: PostParams = PostParams { dry_run: false, field_manager: None };

async fn opt<T>(call: impl Future<Output = Result<T, Error>>) -> Result<Option<T>, Error> {
    match call.await {
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        other => other.map(Some),
    }
}

fn value(object: &DynamicObject) -> Result<Value, KubeError> {
    serde_json::to_value(object)
        .map_err(|error| KubeError::Unreachable(format!("an answer is no object: {error}")))
}

/// Names an object as RBAC rules do: `pods/tare-1-0 in namespace tare-1`.
fn what(kind: Kind, namespace: &str, name: &str) -> String {
    let slash = if name.is_empty() { "" } else { "/" };
    match kind.is_namespaced() && !namespace.is_empty() {
        true => format!("{}{slash}{name} in namespace {namespace}", kind.plural()),
        false => format!("{}{slash}{name}", kind.plural()),
    }
}

fn runtime() -> Result<Runtime, KubeError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| KubeError::Unreachable(format!("cannot wait for a cluster: {error}")))
}

/// Finds the configuration as kubectl does: `$KUBECONFIG`, `~/.kube/config`, or within a pod.
async fn config(which: &ClusterSelector) -> Result<(Config, Option<String>), KubeError> {
    let options = KubeConfigOptions { context: which.context.clone(), ..Default::default() };
    // A kubeconfig may name programs to run, so nobody else may be able to write it.
    for path in kubeconfigs(which) {
        owned::check(&path)
            .map_err(|error| KubeError::Usage(format!("kubeconfig {}: {error}", path.display())))?;
    }
    let file = match &which.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let mut context = which.context.clone();
    let config = match file {
        Ok(file) => {
            check_context(&file, which)?;
            context = context.or_else(|| file.current_context.clone());
            Config::from_custom_kubeconfig(file, &options).await
        }
        Err(error) => Err(error),
    };
    let mut config = config.or_else(|error| match (which, Config::incluster()) {
        (ClusterSelector { context: None, kubeconfig: None }, Ok(config)) => Ok(config),
        _ => Err(config_error(&error)),
    })?;
    config.connect_timeout = Some(CALL);
    Ok((config, context))
}

/// Returns those of the files to read that exist.
fn kubeconfigs(which: &ClusterSelector) -> Vec<PathBuf> {
    let named = which.kubeconfig.clone().map(|path| vec![path]);
    let given = || std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let listed = || Some(std::env::split_paths(&given()?).collect());
    let home = || std::env::home_dir().map(|home| vec![home.join(".kube/config")]);
    let all: Vec<PathBuf> = named.or_else(listed).or_else(home).unwrap_or_default();
    all.into_iter().filter(|path| path.exists()).collect()
}

fn check_context(file: &Kubeconfig, which: &ClusterSelector) -> Result<(), KubeError> {
    let names: Vec<&str> = file.contexts.iter().map(|context| context.name.as_str()).collect();
    match &which.context {
        Some(wanted) if !names.contains(&wanted.as_str()) => {
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(KubeError::Usage(format!(
                "context '{wanted}' is not in the kubeconfig; there are: {known}"
            )))
        }
        _ => Ok(()),
    }
}

fn config_error(error: &KubeconfigError) -> KubeError {
    let words = in_words(error);
    match error {
        KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath => {
            KubeError::Unreachable(words)
        }
        _ => KubeError::Usage(words),
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Parses a manifest of one object.
pub fn manifest(text: &str) -> Result<Value, KubeError> {
    let found: Value = serde_saphyr::from_str(text)
        .map_err(|error| KubeError::Usage(error.to_string().replace('\n', " ")))?;
    match found.is_object() {
        true => Ok(found),
        false => Err(KubeError::Usage("it is not one object".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_one_object() {
        let pod = manifest("kind: Pod\nspec: {containers: [{name: a, image: b}]}\n").unwrap();
        assert_eq!(pod["spec"]["containers"][0]["image"], "b");
        for bad in ["", "- a", "kind: [", "text"] {
            assert!(matches!(manifest(bad), Err(KubeError::Usage(_))), "{bad}");
        }
    }
}
