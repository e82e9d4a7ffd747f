"""
Folders of Orbax, which Flax and MaxText use: one step, with one folder for each item or the arrays directly in it.

A step is renamed into place, or on an object store gets `commit_success.txt`, when all is written; its own metadata
then has the time of the commit. Arrays lie in OCDBT (one key-value store for all) or in one Zarr folder each. What the
store's compressed index names is not looked into: the loss of a single data file after the commit is not seen.
Source: orbax/checkpoint (metadata, atomicity) and the OCDBT storage format of TensorStore.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from healthd.checkpoints.formats.format import Level
from healthd.checkpoints.tree import Damaged, Tree, filename_of, folder_of, inside

STEP = "_CHECKPOINT_METADATA"
ITEM = "_METADATA"
COMMITTED = "commit_success.txt"
MANIFEST = "manifest.ocdbt"
LARGEST_METADATA = 64 << 20
LARGEST_MANIFEST = 1 << 20
_MAGIC = bytes.fromhex("0cdb3a2a")
_FRAME = 17
"""Bytes of a manifest around its content: magic, length, version, and the checksum at the end."""
JSON = "metadata"
"""All that an item of plain values consists of."""
_OF_ARRAYS = ("StandardCheckpointHandler", "PyTreeCheckpointHandler")
_OF_JSON = "JsonCheckpointHandler"
_IN_PROGRESS = ".orbax-checkpoint-tmp"
_ARRAY_FILES = (".zarray", "zarr.json")

T = TypeVar("T")


class _Step(msgspec.Struct):
    commit_timestamp_nsecs: int | None = None
    item_handlers: dict[str, str | None] | str | None = None
    """The class that wrote each item, or the step where it is one item."""


class _Item(msgspec.Struct):
    tree_metadata: dict[str, Any]
    use_ocdbt: bool = False


class Orbax:
    """Committed, and each item of arrays has its store with sound framing."""

    name = "orbax"

    def owns(self, filename: str) -> bool:
        """Its metadata, markers and manifests."""
        return filename in {STEP, ITEM, COMMITTED, MANIFEST}

    def detect(self, tree: Tree) -> bool:
        """Any such file, in any folder."""
        return any(self.owns(filename_of(name)) for name in tree.kinds)

    def verify(self, tree: Tree, level: Level) -> None:  # noqa: ARG002 - the data itself has no checksum of its own
        """The same at both levels. Raises Damaged."""
        _refuse_unfinished(tree)
        for name in sorted(tree.entries):
            if filename_of(name) == ITEM:
                _verify_item(tree, name)
            elif filename_of(name) == MANIFEST:
                verify_manifest(tree.read(name, at_most=LARGEST_MANIFEST), name)
            elif "/d/" in f"/{name}" and not tree.size(name):
                raise Damaged(f"{name}: empty file")


def verify_manifest(raw: bytes, name: str) -> None:
    """Raise Damaged unless *raw* is one whole manifest of OCDBT."""
    if len(raw) < _FRAME or raw[:4] != _MAGIC:
        what = "empty file" if not raw else "not a manifest of OCDBT (torn write)"
        raise Damaged(f"{name}: {what}")
    length = int.from_bytes(raw[4:12], "little")
    if length != len(raw):
        raise Damaged(f"{name}: {len(raw):,} of {length:,} bytes (torn write)")
    if crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise Damaged(f"{name}: its checksum does not match its {length:,} bytes")


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC-32, a few MB each second: manifests are small."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _crc_entry(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_CRC_TABLE = [_crc_entry(value) for value in range(256)]


def _refuse_unfinished(tree: Tree) -> None:
    temporary = next((name for name in tree.entries if _IN_PROGRESS in name), None)
    if temporary is not None:
        raise Damaged(f"{folder_of(temporary) or temporary}: temporary name (save not finished)")
    if STEP not in tree.entries:
        return
    step = _decode(tree, STEP, _Step)
    if COMMITTED not in tree.entries and not step.commit_timestamp_nsecs:
        raise Damaged(f"{STEP}: without the time of a commit (save not finished)")
    handlers = step.item_handlers if isinstance(step.item_handlers, dict) else {"": step.item_handlers}
    for item, handler in handlers.items():
        _refuse_missing_item(tree, inside("", item, told_by=STEP) + "/" if item else "", handler or "")


def _refuse_missing_item(tree: Tree, prefix: str, handler: str) -> None:
    """Of the handlers that are known by name; any other writes what it likes."""
    kind = handler.rpartition(".")[2]
    if kind in _OF_ARRAYS:
        tree.require(f"{prefix}{ITEM}")
    elif kind == _OF_JSON:
        _decode(tree, f"{prefix}{JSON}", msgspec.Raw)


def _verify_item(tree: Tree, name: str) -> None:
    item = _decode(tree, name, _Item)
    folder = folder_of(name)
    prefix = f"{folder}/" if folder else ""
    if item.use_ocdbt:
        tree.require(f"{prefix}{MANIFEST}")
        if not any(entry.startswith(prefix) and "/d/" in f"/{entry}" for entry in tree.entries):
            raise Damaged(f"{prefix}d: missing, with all the data")
    else:
        _refuse_missing_arrays(tree, prefix, item)


def _refuse_missing_arrays(tree: Tree, prefix: str, item: _Item) -> None:
    """Without OCDBT each array is a folder, named by its place in the tree."""
    for leaf in item.tree_metadata.values():
        array = _array_of(leaf)
        if array and not any(f"{prefix}{array}/{file}" in tree.entries for file in _ARRAY_FILES):
            raise Damaged(f"{prefix}{array}: missing, or without its metadata")


def _array_of(leaf: Any) -> str:
    """The folder of one leaf of the tree; empty for what is no array, such as text or nothing."""
    match leaf:
        case {"key_metadata": [*keys], "value_metadata": {"value_type": "np.ndarray" | "jax.Array" | "scalar"}}:
            return ".".join(str(key.get("key")) for key in keys if isinstance(key, dict))
        case _:
            return ""


def _decode(tree: Tree, name: str, kind: type[T]) -> T:
    raw = tree.read(name, at_most=LARGEST_METADATA)
    try:
        raw.decode()  # msgspec does not look into text that is of no use to it
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{name}: not the whole metadata of Orbax (torn write)") from error
