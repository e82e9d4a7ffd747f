"""
Whole checkpoints to be damaged: those that the real libraries wrote, and some that are made here.

Of the latter a file may have a core: what is damaged lies beneath checksums and lengths, which are made again.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from healthd.checkpoints.encodings.sstables import read_table
from healthd.checkpoints.steps import find
from tests.checkpoints.builders import REAL, a_dcp_step, a_sharded_step, dcp_metadata, torch_zip_bytes
from tests.checkpoints.hostile.stores import MANIFEST, NODE, a_leaf_of, a_manifest, an_inner, framed
from tests.checkpoints.hostile.tables import a_block, a_table, an_entry

_BLOCK = 512
_NODE = 2048
_CHECKSUM = slice(148, 156)

Wrap = Callable[[bytes], bytes]


@dataclass(frozen=True, eq=False)
class Seed:
    """One checkpoint."""

    name: str
    path: str
    """Below its folder; empty for the folder itself."""
    files: dict[str, bytes]
    """By name below its folder."""
    beside: tuple[str, ...] = ()
    cores: dict[str, tuple[bytes, Wrap]] = field(default_factory=dict)
    """Of some files: what is damaged, and what makes the file of it."""


def seeds() -> list[Seed]:
    """All of them, each time the same."""
    return [*_real(), *_made()]


def _real() -> list[Seed]:
    found = []
    for top in sorted(REAL.iterdir()):
        files = sorted(file for file in top.rglob("*") if file.is_file()) if top.is_dir() else [top]
        contents = {str(file.relative_to(REAL)): file.read_bytes() for file in files}
        for candidate in find(top):
            place = Path(str(candidate.path)).relative_to(REAL)
            path, below = str(place), [str(place.parent / name) for name in candidate.beside]
            own = {n: c for n, c in contents.items() if n in below or f"{n}/".startswith(f"{path}/")}
            found.append(Seed(path, path, own, candidate.beside))
    return found


def _made() -> list[Seed]:
    return [
        _of_folder("sharded", lambda home: a_sharded_step(home, 10, ranks=2)),
        _of_folder("dcp", lambda home: a_dcp_step(home, 10)),
        _manifest(),
        _archive(),
        _state(),
        _metadata(),
        _header(),
        _table(),
        *_stores(),
        _array(),
    ]


def _of_folder(name: str, make: Callable[[Path], Path]) -> Seed:
    with TemporaryDirectory() as scratch:
        made = make(Path(scratch))
        files = {str(file.relative_to(made)): file.read_bytes() for file in made.rglob("*") if file.is_file()}
    return Seed(name, "", files)


def _of_core(name: str, file: str, core: bytes, wrap: Wrap, **others: bytes) -> Seed:
    return Seed(name, file if not others else "", {file: wrap(core), **others}, cores={file: (core, wrap)})


def _manifest() -> Seed:
    reported = {"weights.raw": {"size": 5, "sha256": sha256(b"abcde").hexdigest()}}
    return Seed("manifest", "", {"weights.raw": b"abcde", "manifest.json": json.dumps({"files": reported}).encode()})


def _archive() -> Seed:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        long = "n" * 120 + "/tokenizer.model"
        for name, content in {"model_config.yaml": b"a: 1\n", "weights.ckpt": torch_zip_bytes(), long: b"x"}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return _of_core("nemo", "step=10.nemo", buffer.getvalue()[:6144], _with_checksums)


def _with_checksums(archive: bytes) -> bytes:
    """Each block that looks like the header of a member gets a right checksum."""
    blocks = bytearray(archive)
    for at in range(0, len(archive) - _BLOCK + 1, _BLOCK):
        block = blocks[at : at + _BLOCK]
        if block[257:262] == b"ustar":
            block[_CHECKSUM] = b" " * 8
            block[_CHECKSUM] = b"%06o\0 " % sum(block)
            blocks[at : at + _BLOCK] = block
    return bytes(blocks)


def _state() -> Seed:
    """The pickle of Lightning's file, which is read at both levels."""
    with zipfile.ZipFile(REAL / "lightning" / "epoch=0-step=6.ckpt") as archive:
        pickle = next(archive.read(name) for name in archive.namelist() if name.endswith("data.pkl"))
    return _of_core("state", "epoch=0-step=6.ckpt", pickle, _as_archive)


def _as_archive(pickle: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickle)
        archive.writestr(zipfile.ZipInfo("archive/data/0"), bytes(64))
    return buffer.getvalue()


def _metadata() -> Seed:
    content = dcp_metadata({f"layer.{n}": ("__0_0.distcp", 0, 0) for n in range(20)})
    return Seed("metadata", "", {".metadata": content, "__0_0.distcp": torch_zip_bytes()})


def _header() -> Seed:
    tensor = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": tensor}).encode()
    return _of_core("header", "m.safetensors", header, lambda core: struct.pack("<Q", len(core)) + core + bytes(24))


def _table() -> Seed:
    raw = (REAL / "tensorflow" / "ckpt-20.index").read_bytes()
    entries = b"".join(an_entry(0, key, value) for key, value in read_table(raw, ""))
    data = (REAL / "tensorflow" / "ckpt-20.data-00000-of-00001").read_bytes()
    return _of_core("table", "c.index", entries, lambda core: a_table(a_block(core)), **{"c.data-00000-of-00001": data})


def _stores() -> list[Seed]:
    """A leaf alone, and below an inner node; each node is filled up, so that its length stays the same."""
    array = REAL / "orbax-zarr" / "10" / "b"
    leaf = a_leaf_of({b"b/.zarray": (array / ".zarray").read_bytes(), b"b/0": (array / "0").read_bytes()})
    inner = an_inner(1, [b"b"], [(0, _NODE)], [0])
    item = b'{"tree_metadata": {}, "use_ocdbt": true}'
    found = []
    for name, nodes in (("leaf", [leaf]), ("inner", [leaf, inner])):
        manifest = a_manifest((_NODE * (len(nodes) - 1), _NODE), len(nodes) - 1)
        before = b"".join(framed(NODE, node, size=_NODE) for node in nodes[:-1])
        cores: dict[str, tuple[bytes, Wrap]] = {
            "manifest.ocdbt": (manifest, partial(framed, MANIFEST)),
            "d/a": (nodes[-1], partial(_after, before)),
        }
        files = {"_METADATA": item, **{file: wrap(core) for file, (core, wrap) in cores.items()}}
        found.append(Seed(f"ocdbt {name}", "", files, cores=cores))
    return found


def _after(before: bytes, core: bytes) -> bytes:
    return before + framed(NODE, core, size=_NODE)


def _array() -> Seed:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    return _of_core(
        "array", "a.npy", header, lambda core: b"\x93NUMPY\2\0" + struct.pack("<I", len(core)) + core + bytes(24)
    )
