#!/usr/bin/env python3
"""An OCI archive of one layer: image.py NAME:TAG ROOT ARCHIVE ENTRYPOINT...; TARE_IMAGE_USER is who
its programs run as, where that is not root.

Files belong to root and have no time: the same folder makes the same archive."""

import hashlib
import io
import json
import os
import sys
import tarfile


def main():
    name, root, archive, *entrypoint = sys.argv[1:]
    process = {"Entrypoint": entrypoint, "Env": ["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
    if user := os.environ.get("TARE_IMAGE_USER"):
        process["User"] = user
    blobs = {}

    def blob(content, kind, **more):
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content), **more}

    layer = blob(layer_of(root), "layer.v1.tar")
    config = blob(
        text({
            "architecture": "amd64",
            "os": "linux",
            "config": process,
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        }),
        "config.v1+json",
    )
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [layer]}
    index = {"schemaVersion": 2, "manifests": [blob(text(manifest), "manifest.v1+json", annotations={"io.containerd.image.name": name})]}
    blobs["oci-layout"] = text({"imageLayoutVersion": "1.0.0"})
    blobs["index.json"] = text(index)
    with tarfile.open(archive, "w") as out:
        for path, content in blobs.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))


def layer_of(root):
    def nobodys(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as out:
        for name in sorted(os.listdir(root)):
            out.add(os.path.join(root, name), arcname=name, filter=nobodys)
    return content.getvalue()


def text(value):
    return json.dumps(value, sort_keys=True).encode()


if __name__ == "__main__":
    main()
