"""Container images written by hand: layers of plain tar, and a few lines of JSON that say how they belong together."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_KEPT = 3
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A tar on disk. `digest` (SHA-256, in hex) names its content."""

    path: Path
    digest: str


@dataclass(frozen=True, kw_only=True)
class Image:
    """Layers, the lowest first, and what to run: `config` has the fields of the OCI image configuration."""

    name: str
    layers: tuple[Layer, ...]
    config: Mapping[str, Any]

    def archive(self, *, without: Collection[Layer] = ()) -> bytes:
        """The image as a tar in the OCI layout, without the content of layers that its importer has already."""
        config = _json(
            architecture=_ARCHITECTURES[platform.machine()],
            os="linux",
            config=self.config,
            rootfs={"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in self.layers]},
        )
        layers = [_described(_LAYER, layer.digest, layer.path.stat().st_size) for layer in self.layers]
        manifest = _json(
            schemaVersion=2,
            mediaType=_MANIFEST,
            config=_described(_CONFIG, _sha256(config), len(config)),
            layers=layers,
        )
        entry = _described(_MANIFEST, _sha256(manifest), len(manifest))
        entry["annotations"] = {"io.containerd.image.name": self.name}
        blobs = {_sha256(blob): blob for blob in (config, manifest)}
        blobs.update((layer.digest, layer.path.read_bytes()) for layer in self.layers if layer not in without)
        files = {
            "oci-layout": _json(imageLayoutVersion="1.0.0"),
            "index.json": _json(schemaVersion=2, manifests=[entry]),
        }
        return tar({**files, **{f"blobs/sha256/{digest}": blob for digest, blob in blobs.items()}})


def cached_layer(path: Path, make: Callable[[Path], object]) -> Layer:
    """The layer at *path*; *make* writes it to the path that it gets when it is not there yet. Hold a lock."""
    digest = path.with_suffix(".sha256")
    if not digest.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)
        with path.open("rb") as content:
            digest.write_text(hashlib.file_digest(content, "sha256").hexdigest())
        _forget_old(path)
    return Layer(path=path, digest=digest.read_text())


def _forget_old(newest: Path) -> None:
    """Of each kind of layer, which its name begins with, some are kept, for a return to older code."""
    kind = newest.name.partition("-")[0]
    others = [path for path in newest.parent.glob(f"{kind}-*.tar") if path != newest]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT:]:
        path.with_suffix(".sha256").unlink()
        path.unlink()


def tar(files: Mapping[str, bytes], *, mode: int = 0o644) -> bytes:
    """A tar of *files*, the same for the same content."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def tar_of(directory: Path, into: Path, *, leave_out: Collection[str] = ()) -> None:
    """A tar of what is in *directory*, owned by root; *leave_out* names paths below it."""

    def as_roots(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if any(entry.name == path or entry.name.startswith(f"{path}/") for path in leave_out):
            return None
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(into, "w") as archive:
        for path in sorted(directory.iterdir()):
            archive.add(path, arcname=path.name, filter=as_roots)


def _described(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(**fields: Any) -> bytes:
    return json.dumps(fields, sort_keys=True).encode()
