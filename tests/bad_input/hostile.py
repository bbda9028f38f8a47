"""A docker archive with one hostile entry in its only layer: hostile.py OUT dots|hardlink ENTRY OUTSIDE."""
import hashlib
import io
import json
import sys
import tarfile

out, kind, entry, outside = sys.argv[1:5]
layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode="w") as tar:
    info = tarfile.TarInfo(entry)
    if kind == "hardlink":
        info.type, info.linkname = tarfile.LNKTYPE, "../../../../../../.." + outside
        tar.addfile(info)
    else:
        info.size = 3
        tar.addfile(info, io.BytesIO(b"out"))
layer = layer.getvalue()
diff_id = "sha256:" + hashlib.sha256(layer).hexdigest()
config = {"architecture": "amd64", "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff_id]}}
manifest = [{"Config": "c.json", "RepoTags": [f"hostile.local/{kind}:1"], "Layers": ["l.tar"]}]
with tarfile.open(out, "w") as tar:
    for name, data in [
        ("l.tar", layer),
        ("c.json", json.dumps(config).encode()),
        ("manifest.json", json.dumps(manifest).encode()),
    ]:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
