//! Images that a procedure's nodes pull, from a registry that this test runs: a real nginx in the
//! network namespace of a node, because container runtimes use plain HTTP on loopback.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tare_report::steps::StepsReport;
use tare_tidy::skips::not_run;

use crate::support::{Desk, Namespace, kubectl};
use crate::util::str;

/// Returns the network namespace of the node that pulls, if this machine runs that node.
fn node() -> Option<String> {
    let kubeconfig = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap_or_default());
    let parts = kubeconfig.parent().and_then(Path::parent).map(|state| state.join("parts"));
    let names = parts.and_then(|parts| std::fs::read_dir(parts).ok()).into_iter().flatten();
    let mut names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let found = names.find(|name| name.ends_with("node1"));
    let shop = std::env::var_os("TARE_SHOP");
    if found.is_none() || shop.is_none() {
        not_run("needs a node and the shop of scripts/cluster/with");
    }
    found.filter(|_| shop.is_some())
}

fn done(command: &mut Command) {
    let said = command.output().unwrap();
    assert!(said.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said.stderr));
}

const PORT: u16 = 18480;

/// Serves one image, as files, until it is dropped.
struct Registry {
    nginx: Child,
    /// Total size of its manifest, configuration and layer.
    bytes: u64,
}

impl Registry {
    fn start(desk: &Desk, node: &str) -> Self {
        let root = desk.folder.file("root");
        let (bin, layout) = (root.join("usr/local/bin"), desk.folder.file("layout"));
        for folder in [&bin, &layout] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::copy(std::env::var("TARE_SHOP").unwrap(), bin.join("tare-shop")).unwrap();
        let archive = desk.folder.file("image.tar");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/cluster/image.py");
        let (root, archive) = (str(&root), str(&archive));
        done(Command::new(script).args(["page:1", root, archive, "/usr/local/bin/tare-shop"]));
        done(Command::new("tar").args(["-xf", archive, "-C", str(&layout)]));
        let index = std::fs::read(layout.join("index.json")).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        let digest = index["manifests"][0]["digest"].as_str().unwrap();
        let blobs = layout.join("blobs/sha256");
        let sizes =
            std::fs::read_dir(&blobs).unwrap().map(|blob| blob.unwrap().metadata().unwrap());
        let conf = format!(
            "pid nginx.pid; error_log stderr; events {{}} http {{ access_log off;
             server {{ listen 127.0.0.1:{PORT};
               location = /v2/ {{ return 200 '{{}}'; }}
               location = /v2/page/manifests/1 {{ rewrite .* /v2/page/manifests/{digest}; }}
               location ~ ^/v2/page/manifests/sha256:(.*)$ {{
                 default_type application/vnd.oci.image.manifest.v1+json;
                 add_header Docker-Content-Digest {digest};
                 alias {blobs}/$1; }}
               location ~ ^/v2/page/blobs/sha256:(.*)$ {{ alias {blobs}/$1; }} }} }}",
            blobs = blobs.display(),
        );
        let conf = desk.file("nginx.conf", &conf);
        let mut nginx = Command::new("ip");
        nginx.args(["netns", "exec", node, "nginx", "-e", "stderr", "-g", "daemon off;"]);
        nginx.args(["-p", str(&desk.folder.0), "-c", str(&conf)]).stdout(Stdio::null());
        let bytes = sizes.map(|size| size.len()).sum();
        Self { nginx: nginx.spawn().unwrap(), bytes }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // With a signal that lets its workers end too.
        let _ = tare_io::process::signal(self.nginx.id(), libc::SIGTERM);
        let _ = self.nginx.wait();
    }
}

/// Writes a procedure that starts one pod of that image on that node.
fn procedure(desk: &Desk, space: &str, pull: &str) -> PathBuf {
    let program = std::env::var("TARE_KUBECTL").unwrap_or_else(|_| "kubectl".into());
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: page}}\nspec:\n  nodeName: node1\n  \
         terminationGracePeriodSeconds: 0\n  containers:\n    - name: page\n      \
         image: localhost:{PORT}/page:1\n      imagePullPolicy: {pull}\n      env:\n        \
         - {{name: SHOP_NAME, value: currency}}\n        \
         - {{name: SHOP_LISTEN, value: \"0.0.0.0:8080\"}}\n"
    );
    let pod = desk.file(&format!("{pull}.yaml"), &pod);
    let context = kubectl(&["config", "current-context"]);
    let text = format!(
        "name = \"{pull}\"\nimages_of = [{context:?}]\n[env]\nK = {program:?}\nSPACE = {space:?}\n\
         [reset]\nrun = \"$K -n $SPACE delete pod page --ignore-not-found\"\n\
         clean = '[ -z \"$($K -n $SPACE get pods -o name)\" ]'\n\
         [[step]]\nname = \"pod\"\nrun = \"$K -n $SPACE apply -f {pod}\"\n\
         [[step]]\nname = \"it is ready\"\n\
         wait = {{ kubernetes = \"pod/page\", namespace = {space:?} }}\nwithin = \"1m\"\n\
         [[step]]\nname = \"it runs\"\nkind = \"verify\"\n\
         run = \"$K -n $SPACE get pod page -o jsonpath={{.status.phase}} | grep Running\"\n",
        context = context.trim(),
        pod = pod.display(),
    );
    desk.file(&format!("{pull}.toml"), &text)
}

#[test]
fn images_that_nodes_pull_are_counted_and_those_that_they_have() {
    let Some(node) = node() else { return };
    let desk = Desk::new("images");
    let namespace = Namespace::new("images");
    let registry = Registry::start(&desk, &node);
    let images = |pull: &str| {
        let path = procedure(&desk, &namespace.0, pull);
        let ran = desk.tare(&["steps", str(&path), "-r", "2", "-q", "--json", "-"]).success();
        let report: StepsReport = serde_json::from_str(&ran.stdout).unwrap();
        let of = |one: tare_model::steps::Images| (one.used, one.pulled, one.pulled_bytes);
        let all: Vec<_> = report.repetitions.iter().filter_map(|one| one.images.map(of)).collect();
        assert_eq!(all.len(), 2, "{}", ran.story());
        all
    };
    // With Always every repetition pulls; with IfNotPresent none does.
    let pulled = images("Always");
    let bytes = pulled[0].2.unwrap();
    assert_eq!(pulled, [(1, 1, Some(bytes)); 2]);
    assert_eq!(bytes, registry.bytes, "as the node says, and as it was served");
    assert_eq!(images("IfNotPresent"), [(1, 0, Some(0)); 2]);
    let nobody = desk.file(
        "nobody.toml",
        "name = \"x\"\nimages_of = [\"nobody\"]\n[[step]]\nname = \"a\"\nkind = \"verify\"\nrun = \"true\"\n",
    );
    let ran = desk.tare(&["steps", str(&nobody), "-r", "1", "-q"]);
    assert_eq!(ran.code, Some(3), "{}", ran.story());
    assert!(ran.stderr.contains("images of nobody cannot be counted: "), "{}", ran.story());
}
