"""
Folders of Orbax, which Flax and MaxText use: one step, with one folder per item, or with the arrays directly in it.

A step is renamed into place, or on an object store gets `commit_success.txt`, when all is written. Its own metadata
then has the time of the commit. Arrays are Zarr arrays (see `zarrs`), in OCDBT (one key-value store for all, see
`ocdbt`) or in one folder each. A missing piece of an array would be read as zeros. When Orbax states that it stores
zero pieces too, a missing piece is refused. Source: orbax/checkpoint (metadata, atomicity).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec

from healthd.checkpoints.encodings.jsons import refuse_no_text, refuse_too_many_values
from healthd.checkpoints.encodings.ocdbt import LARGEST_MANIFEST, ValueLocation, read_values, verify_manifest
from healthd.checkpoints.encodings.zarrs import LARGEST_METADATA as LARGEST_ARRAY_FILE
from healthd.checkpoints.encodings.zarrs import METADATA as ARRAY_FILES
from healthd.checkpoints.encodings.zarrs import ArrayInfo, ReadBudget, parse_array, verify_piece
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree, filename_of, folder_of, inside
from healthd.checkpoints.windows import Window, open_window
from healthd.checkpoints.workers import for_each

STEP = "_CHECKPOINT_METADATA"
ITEM = "_METADATA"
COMMITTED = "commit_success.txt"
MANIFEST = "manifest.ocdbt"
LARGEST_METADATA = 64 << 20
MOST_VALUES = 6_000_000
"""The limit of values in JSON. An array has about eighty."""
JSON = "metadata"
"""The only file of an item of plain values."""
_OF_ARRAYS = ("StandardCheckpointHandler", "PyTreeCheckpointHandler")
_OF_JSON = "JsonCheckpointHandler"
_IN_PROGRESS = ".orbax-checkpoint-tmp"
_OF_ARRAY = ("np.ndarray", "jax.Array", "scalar")
_TYPES = (*_OF_ARRAY, "string", "None")
_OF_EACH_LEAF = ("value_type", "skip_deserialize")
_MANY = 1000
"""The number of array pieces that are checked together."""

_MOST_LEVELS = 64
"""The limit of nested folders below an array."""

T = TypeVar("T")


class _Step(msgspec.Struct):
    commit_timestamp_nsecs: int | None = None
    item_handlers: dict[str, str | None] | str | None = None
    """The class that wrote each item. For a step that is one item: its class."""


class _Item(msgspec.Struct):
    tree_metadata: dict[str, Any]
    use_ocdbt: bool = False
    store_array_data_equal_to_fill_value: bool = False
    """Whether pieces with only zeros are stored as well."""


class Orbax:
    """The step is committed, and each item of arrays has its store with every file in its index."""

    name = "orbax"

    def owns(self, filename: str) -> bool:
        """The metadata, markers and manifests of Orbax."""
        return filename in {STEP, ITEM, COMMITTED, MANIFEST}

    def detect(self, tree: Tree) -> bool:
        """Any such file, in any folder."""
        return any(self.owns(filename_of(name)) for name in tree.kinds)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK reads metadata and indexes. FULL decompresses every piece of an array. Raises Damaged."""
        _refuse_unfinished(tree)
        for name in sorted(tree.entries):
            if filename_of(name) == ITEM:
                _verify_item(tree, level, name)
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
        _refuse_missing_item(tree, inside("", item, named_by=STEP) + "/" if item else "", handler or "")


def _refuse_missing_item(tree: Tree, prefix: str, handler: str) -> None:
    """Checks only handlers that are known by name. Others may write any files."""
    kind = handler.rpartition(".")[2]
    if kind in _OF_ARRAYS:
        tree.require(f"{prefix}{ITEM}")
    elif kind == _OF_JSON:
        _decode(tree, f"{prefix}{JSON}", msgspec.Raw)


def _verify_item(tree: Tree, level: VerifyLevel, name: str) -> None:
    item = _decode(tree, name, _Item)
    _refuse_torn_leaves(item, name)
    folder = folder_of(name)
    prefix = f"{folder}/" if folder else ""
    room = ReadBudget(sum(entry.stamp.size for entry in tree.entries.values()))
    arrays, pieces = _in_store(tree, prefix) if item.use_ocdbt else _in_folders(tree, prefix)
    _refuse_missing_arrays(arrays, prefix, item)
    if not arrays:
        return
    counts = dict.fromkeys(arrays, 0)
    stream = (piece for piece in pieces if piece.array in arrays and arrays[piece.array].has(piece.name))
    while some := list(islice(stream, _MANY)):
        for piece in some:
            counts[piece.array] += 1
        for_each(partial(_verify_piece, tree, level, prefix, arrays, room), some, at_once=tree.at_once)
    short = next((array for array, count in counts.items() if count < arrays[array].how_many), None)
    if short is not None and item.store_array_data_equal_to_fill_value:
        raise Damaged(f"{prefix}{short:.200}: {counts[short]:,} of {arrays[short].how_many:,} pieces")


class _Piece(NamedTuple):
    """One piece of an array."""

    array: str
    name: str
    """The name relative to the array."""
    value: ValueLocation


def _in_store(tree: Tree, prefix: str) -> tuple[dict[str, ArrayInfo], Iterator[_Piece]]:
    """The arrays in the OCDBT store, and all values that may be their pieces."""
    manifest = f"{prefix}{MANIFEST}"
    tree.require(manifest)
    if not any(entry.startswith(prefix) and "/d/" in f"/{entry}" for entry in tree.entries):
        raise Damaged(f"{prefix}d: missing, with all the data")
    metadata = read_values(tree, manifest, ending=ARRAY_FILES, keeps=True)
    arrays = {folder_of(value.key): _read_array(tree, prefix, value) for value in metadata if _is_metadata(value)}
    return arrays, (_piece_of(value, arrays) for value in read_values(tree, manifest) if not _is_metadata(value))


def _in_folders(tree: Tree, prefix: str) -> tuple[dict[str, ArrayInfo], Iterator[_Piece]]:
    """The arrays with one folder each, and all files that may be their pieces."""
    values = [
        ValueLocation(name.removeprefix(prefix), None, name, 0, entry.stamp.size)
        for name, entry in sorted(tree.entries.items())
        if name.startswith(prefix)
    ]
    arrays = {folder_of(value.key): _read_array(tree, prefix, value) for value in values if _is_metadata(value)}
    return arrays, (_piece_of(value, arrays) for value in values if not _is_metadata(value))


def _is_metadata(value: ValueLocation) -> bool:
    return filename_of(value.key) in ARRAY_FILES


def _read_array(tree: Tree, prefix: str, value: ValueLocation) -> ArrayInfo:
    name = f"{prefix}{value.key:.200}"
    if value.length > LARGEST_ARRAY_FILE:
        raise Damaged(f"{name}: {value.length:,} bytes of metadata of an array")
    with _open(tree, value, name) as window:
        return parse_array(window.at(value.offset, value.length), name)


def _piece_of(value: ValueLocation, arrays: Container[str]) -> _Piece:
    """The piece of a value. Pieces may be in folders below that of their array."""
    folder = folder_of(value.key)
    for _ in range(_MOST_LEVELS):
        if not folder or folder in arrays:
            break
        folder = folder_of(folder)
    return _Piece(folder, value.key[len(folder) + 1 :], value)


def _verify_piece(
    tree: Tree, level: VerifyLevel, prefix: str, arrays: Mapping[str, ArrayInfo], room: ReadBudget, piece: _Piece
) -> None:
    value = piece.value
    name = f"{prefix}{value.key:.200}"
    if not value.length:
        raise Damaged(f"{name}: an empty piece of an array")
    if level is VerifyLevel.FULL:
        with _open(tree, value, name) as window:
            verify_piece(window, value.offset, value.length, arrays[piece.array], name, room)


@contextmanager
def _open(tree: Tree, value: ValueLocation, name: str) -> Iterator[Window]:
    raw = value.inline
    if raw is not None:
        yield Window(lambda begin, size: raw[begin : begin + size], name, len(raw))
        return
    with open_window(tree, value.file) as window:
        yield window


def _refuse_torn_leaves(item: _Item, name: str) -> None:
    """The loader reads the same fields of each leaf. A field that only some leaves have is a changed name."""
    values = []
    for place, leaf in item.tree_metadata.items():
        match leaf:
            case {"key_metadata": [*keys], "value_metadata": dict(value)} if all(map(_is_key, keys)):
                values.append(value)
            case _:
                raise Damaged(f"{name}: {place[:80]!r} is listed without its key or its value")
    garbled = next((kind for kind in {str(value.get("value_type")) for value in values} if _is_garbled(kind)), None)
    if garbled is not None:
        raise Damaged(f"{name}: a value of type {garbled[:40]!r}, one letter off one that there is")
    for field in _OF_EACH_LEAF:
        having = sum(field in value for value in values)
        if having and having < len(item.tree_metadata):
            raise Damaged(f"{name}: {having:,} of {len(item.tree_metadata):,} leaves have a {field}")


def _is_garbled(kind: str) -> bool:
    """Other writers may register types under any name, but hardly under a name one letter off a name of Orbax."""
    alike = (known for known in _TYPES if len(known) == len(kind))
    return any(sum(ours != theirs for ours, theirs in zip(known, kind, strict=True)) == 1 for known in alike)


def _is_key(entry: object) -> bool:
    return isinstance(entry, dict) and {"key", "key_type"} <= entry.keys()


def _refuse_missing_arrays(arrays: Container[str], prefix: str, item: _Item) -> None:
    """Each array is a folder, named by its position in the tree: on the disk, or among the keys of OCDBT."""
    for leaf in item.tree_metadata.values():
        array = _array_of(leaf)
        if array and array not in arrays:
            raise Damaged(f"{prefix}{array}: missing, or without its metadata")


def _array_of(leaf: Any) -> str:
    """The folder of one leaf of the tree. Empty for a leaf that is not an array, such as text or None."""
    match leaf:
        case {"key_metadata": [*keys], "value_metadata": {"value_type": str(kind)}} if kind in _OF_ARRAY:
            return ".".join(str(key.get("key")) for key in keys if isinstance(key, dict))
        case _:
            return ""


def _decode(tree: Tree, name: str, kind: type[T]) -> T:
    raw = tree.read(name, at_most=LARGEST_METADATA)
    refuse_too_many_values(raw, name, most=MOST_VALUES)
    try:
        refuse_no_text(raw)  # msgspec does not check texts that it skips
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{name}: not the whole metadata of Orbax (torn write)") from error
