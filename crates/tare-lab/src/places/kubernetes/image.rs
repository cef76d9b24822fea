//! OCI image archives with one layer: of the agent, for clusters that forbid copying programs into
//! containers, and of tare.

use std::io::{self, Write};
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::{Value, json};
use tare_io::files::OutputFile;

use crate::places::agent_file;
use tare_model::Failure;

pub const AGENT_IN_IMAGE: &str = "/tare-agent";

/// Files and settings of an image.
struct Image {
    /// Absolute paths, and contents. A path that ends with a slash is a folder for everyone.
    files: Vec<(&'static str, Vec<u8>)>,
    entrypoint: &'static str,
    arguments: &'static [&'static str],
    architecture: &'static str,
}

/// Writes the archive of the agent; `name` is the image's name once it is loaded.
pub fn write_agent(to: &Path, name: &str) -> Result<(), Failure> {
    let (agent, architecture) = read_program(&agent_file::find()?)?;
    let files = vec![(AGENT_IN_IMAGE, agent)];
    let image = Image { files, entrypoint: AGENT_IN_IMAGE, arguments: &["hold"], architecture };
    write(to, name, &image)
}

/// Writes the archive of tare and its agent.
pub fn write_tare(to: &Path, name: &str, tare: &Path, agent: &Path) -> Result<(), Failure> {
    const TARE: &str = "/usr/bin/tare";
    let (tare, architecture) = read_program(tare)?;
    let (agent, _) = read_program(agent)?;
    let files = vec![("/tmp/", Vec::new()), (TARE, tare), ("/usr/lib/tare/tare-agent", agent)];
    write(to, name, &Image { files, entrypoint: TARE, arguments: &[], architecture })
}

/// Reads a program; returns it with its architecture's name in images.
fn read_program(path: &Path) -> Result<(Vec<u8>, &'static str), Failure> {
    let bytes = std::fs::read(path).map_err(|e| Failure::file("read", path, e))?;
    match bytes.get(..20) {
        Some([0x7f, b'E', b'L', b'F', .., 62, 0]) => Ok((bytes, "amd64")),
        Some([0x7f, b'E', b'L', b'F', .., 183, 0]) => Ok((bytes, "arm64")),
        _ => {
            let text = format!("{}: not a program for x86-64 or arm64", path.display());
            Err(Failure::usage(text))
        }
    }
}

fn write(to: &Path, name: &str, image: &Image) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "./:-_@".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        let text = format!("'{}' is not the name of an image", name.escape_debug());
        return Err(Failure::usage(text));
    }
    let mut all = Vec::new();
    let written = archive(image, name, &mut all).and_then(|()| OutputFile::find(to)?.write(&all));
    written.map_err(|e| Failure::file("write", to, e))
}

fn archive(image: &Image, name: &str, out: &mut impl Write) -> io::Result<()> {
    let mut layer = Vec::new();
    for (path, bytes) in &image.files {
        let mode = if path.ends_with('/') { 0o1777 } else { 0o755 };
        entry(&mut layer, path.trim_start_matches('/'), mode, bytes)?;
    }
    end(&mut layer)?;
    let config = json!({
        "architecture": image.architecture,
        "os": "linux",
        "config": {
            "Entrypoint": [image.entrypoint],
            "Cmd": image.arguments,
            "Env": ["HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": [sha256(&layer)]},
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described(&config, "config.v1+json"),
        "layers": [described(&layer, "layer.v1.tar")],
    });
    let manifest = manifest.to_string().into_bytes();
    let mut listed = described(&manifest, "manifest.v1+json");
    listed["annotations"] =
        json!({"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name});
    let index = json!({"schemaVersion": 2, "manifests": [listed]}).to_string();
    entry(out, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    entry(out, "index.json", 0o644, index.as_bytes())?;
    for blob in [&layer, &config, &manifest] {
        let hash = sha256(blob);
        entry(out, &hash.replace("sha256:", "blobs/sha256/"), 0o644, blob)?;
    }
    end(out)
}

fn described(blob: &[u8], kind: &str) -> Value {
    let kind = format!("application/vnd.oci.image.{kind}");
    json!({"mediaType": kind, "digest": sha256(blob), "size": blob.len()})
}

fn sha256(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    let digits: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

const BLOCK: usize = 512;

/// Writes a file or folder in ustar format. It belongs to root and has no timestamp, so that the
/// same program always makes the same image.
fn entry(out: &mut impl Write, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut header = [0u8; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{:011o}", bytes.len()).as_bytes());
    put(136, b"00000000000");
    put(148, b"        ");
    put(156, if name.ends_with('/') { b"5" } else { b"0" });
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    out.write_all(&header)?;
    out.write_all(bytes)?;
    let rest = bytes.len().next_multiple_of(BLOCK) - bytes.len();
    out.write_all(&[0; BLOCK][..rest])
}

fn end(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_an_archive_that_tar_reads_and_whose_hashes_are_right() {
        let folder = std::env::temp_dir().join(format!("tare-image-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("image.tar");
        let mut file = std::fs::File::create(&path).unwrap();
        let image = Image {
            files: vec![("/tmp/", Vec::new()), (AGENT_IN_IMAGE, b"the agent".to_vec())],
            entrypoint: AGENT_IN_IMAGE,
            arguments: &["hold"],
            architecture: "arm64",
        };
        archive(&image, "r/agent:1", &mut file).unwrap();
        let tar = |words: &[&str]| {
            let mut command = std::process::Command::new("tar");
            let done = command.args(words).arg("-f").arg(&path).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            done.stdout
        };
        let index: Value = serde_json::from_slice(&tar(&["-xO", "index.json"])).unwrap();
        let blob = |digest: &Value| {
            let digest = digest.as_str().unwrap();
            let bytes = tar(&["-xO", &digest.replace("sha256:", "blobs/sha256/")]);
            assert_eq!(sha256(&bytes), digest);
            bytes
        };
        let manifest: Value =
            serde_json::from_slice(&blob(&index["manifests"][0]["digest"])).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"]["digest"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"][0], AGENT_IN_IMAGE);
        let layer = blob(&manifest["layers"][0]["digest"]);
        assert_eq!(config["rootfs"]["diff_ids"][0], sha256(&layer));
        std::fs::write(&path, layer).unwrap();
        assert_eq!(tar(&["-t"]), b"tmp/\ntare-agent\n");
        assert_eq!(tar(&["-xO", "tare-agent"]), b"the agent");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
