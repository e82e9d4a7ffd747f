"""
Folders of Orbax, which Flax and MaxText use: one step, with one folder for each item or the arrays directly in it.

A step is renamed into place, or on an object store gets `commit_success.txt`, when all is written; its own metadata
then has the time of the commit. Arrays lie in OCDBT (one key-value store for all, see `ocdbt`) or in one Zarr folder
each; a piece of an array that the store does not have reads as zeros there, and is not missed.
Source: orbax/checkpoint (metadata, atomicity).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeVar

import msgspec

from healthd.checkpoints.formats.format import Level
from healthd.checkpoints.ocdbt import LARGEST_MANIFEST, read_keys, verify_manifest
from healthd.checkpoints.tree import Damaged, Tree, filename_of, folder_of, inside

STEP = "_CHECKPOINT_METADATA"
ITEM = "_METADATA"
COMMITTED = "commit_success.txt"
MANIFEST = "manifest.ocdbt"
LARGEST_METADATA = 64 << 20
JSON = "metadata"
"""All that an item of plain values consists of."""
_OF_ARRAYS = ("StandardCheckpointHandler", "PyTreeCheckpointHandler")
_OF_JSON = "JsonCheckpointHandler"
_IN_PROGRESS = ".orbax-checkpoint-tmp"
_OF_EACH_LEAF = ("value_type", "skip_deserialize")
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
    """Committed, and each item of arrays has its store with every file that its index names."""

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
    _refuse_torn_leaves(item, name)
    folder = folder_of(name)
    prefix = f"{folder}/" if folder else ""
    if item.use_ocdbt:
        tree.require(f"{prefix}{MANIFEST}")
        if not any(entry.startswith(prefix) and "/d/" in f"/{entry}" for entry in tree.entries):
            raise Damaged(f"{prefix}d: missing, with all the data")
        _refuse_missing_arrays(read_keys(tree, f"{prefix}{MANIFEST}", ending=_ARRAY_FILES), "", prefix, item)
    else:
        _refuse_missing_arrays(tree.entries, prefix, prefix, item)


def _refuse_torn_leaves(item: _Item, name: str) -> None:
    """The loader asks each leaf for the same; what only some of them have is a name that was changed."""
    told = [leaf.get("value_metadata") for leaf in item.tree_metadata.values() if isinstance(leaf, dict)]
    values = [value for value in told if isinstance(value, dict)]
    for field in _OF_EACH_LEAF:
        having = sum(field in value for value in values)
        if having and having < len(item.tree_metadata):
            raise Damaged(f"{name}: {having:,} of {len(item.tree_metadata):,} leaves have a {field}")


def _refuse_missing_arrays(names: Container[str], within: str, prefix: str, item: _Item) -> None:
    """Each array is a folder, named by its place in the tree: on the disk, or among the keys of OCDBT."""
    for leaf in item.tree_metadata.values():
        array = _array_of(leaf)
        if array and not any(f"{within}{array}/{file}" in names for file in _ARRAY_FILES):
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
