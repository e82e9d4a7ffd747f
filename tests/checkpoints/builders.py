"""Checkpoints made by hand, whole unless a test damages them."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from healthd.checkpoints.latest import Candidate, Checkpoint, VerifyLevel, verify

REAL = Path(__file__).parent / "real"
"""Written by torch and safetensors; see tests.frameworks.make_torch_fixtures."""


def safetensors_bytes(tensors: Mapping[str, int], *, fill: bytes = b"\1") -> bytes:
    """One file with float32 tensors of so many elements."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, count in tensors.items():
        header[name] = {"dtype": "F32", "shape": [count], "data_offsets": [end, end + 4 * count]}
        end += 4 * count
    return safetensors_raw(header, fill * end)


def safetensors_raw(header: object, data: bytes) -> bytes:
    """One file with any header."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def shard_name(rank: int, ranks: int) -> str:
    """As the ranks of a gang name theirs, counted from 0."""
    return f"model-{rank:05}-of-{ranks:05}.safetensors"


def a_sharded_step(root: Path, step: int, *, ranks: int = 4, index: bool = True, elements: int = 100) -> Path:
    """A step directory as a gang writes it: one shard for each rank, the index last."""
    folder = root / f"step-{step:06}"
    folder.mkdir(parents=True)
    for rank in range(ranks):
        (folder / shard_name(rank, ranks)).write_bytes(safetensors_bytes({f"layer.{rank}": elements}))
    if index:
        weight_map = {f"layer.{rank}": shard_name(rank, ranks) for rank in range(ranks)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def refusal(path: Path, *, level: VerifyLevel = VerifyLevel.FULL, format: str = "") -> str:  # noqa: A002 - as the code under test
    """Why the checkpoint at *path* is refused; empty when it is not."""
    outcome = verify(Candidate(path=path, step=10), level=level, format=format)
    return "" if isinstance(outcome, Checkpoint) else outcome.reason


def torch_zip_bytes(payload: bytes = b"\1" * 64, *, state: object = None) -> bytes:
    """A file laid out as `torch.save` does: stored members of no date, the pickle of *state* first."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickle.dumps({} if state is None else state, protocol=2))
        archive.writestr(zipfile.ZipInfo("archive/data/0"), payload)
        archive.writestr(zipfile.ZipInfo("archive/version"), b"3\n")
    return buffer.getvalue()


def write_files(folder: Path, *names: str, state: object = None) -> Path:
    """The folder with files of `torch.save` under these names, which all hold *state*."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(torch_zip_bytes(state=state))
    return folder


def a_dcp_step(root: Path, step: int, *, ranks: int = 2) -> Path:
    """A torch.distributed.checkpoint directory with one piece for each rank."""
    folder = root / f"step-{step}"
    folder.mkdir(parents=True)
    piece = torch_zip_bytes()
    for rank in range(ranks):
        (folder / f"__{rank}_0.distcp").write_bytes(piece)
    infos = {f"layer.{rank}": (f"__{rank}_0.distcp", 0, len(piece)) for rank in range(ranks)}
    (folder / ".metadata").write_bytes(dcp_metadata(infos))
    return folder


def dcp_metadata(
    infos: Mapping[str, tuple[str, int, int]], kinds: Mapping[str, str] | None = None, transforms: Sequence[str] = ()
) -> bytes:
    """`.metadata` with the names that torch gives its classes: what is stored to file, offset and length, and kind."""
    dcp = "torch.distributed.checkpoint"
    items = b"".join(
        an_object(f"{dcp}.metadata", "MetadataIndex", {"fqn": fqn, "offset": None, "index": None})
        + an_object(
            f"{dcp}.filesystem",
            "_StorageInfo",
            {"relative_path": path, "offset": offset, "length": length}
            | ({"transform_descriptors": list(transforms)} if transforms else {}),
        )
        for fqn, (path, offset, length) in infos.items()
    )
    storage = b"}(" + items + b"u"
    reported = (data(key) + an_object(f"{dcp}.metadata", kind, {}) for key, kind in (kinds or {}).items())
    fields = [("state_dict_metadata", b"}(" + b"".join(reported) + b"u"), ("storage_data", storage)]
    metadata = an_object(f"{dcp}.metadata", "Metadata", {}, more=fields)
    return b"\x80\x02" + metadata + b"."


def an_object(module: str, name: str, fields: Mapping[str, object], more: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """Pickle instructions for an object of any class, which need not exist here; *more* fields as instructions."""
    state = data(dict(fields)) + b"(" + b"".join(data(key) + value for key, value in more) + b"u"
    return f"c{module}\n{name}\n".encode() + b")\x81" + state + b"b"


def data(value: object) -> bytes:
    """Pickle instructions for plain data, without the frame around them."""
    return pickle.dumps(value, protocol=2)[2:-1]
