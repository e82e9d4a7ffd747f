"""
Directories of `torch.distributed.checkpoint`: `.metadata`, written last, and the `*.distcp` files that it names.

`.metadata` is a pickle. It is read as data and never loaded. Its `storage_data` gives the file and the position of
every piece. With FULL each piece is read: tensors are zip archives of `torch.save`, whose CRC is compared. So are
objects (a learning rate, a scheduler), unless a custom planner writes them as a pickle or as text. Source:
torch/distributed/checkpoint/metadata.py, filesystem.py and default_planner.py of PyTorch.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Container
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from healthd.checkpoints.encodings import zips
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.torch.compressed_pieces import ZSTD, verify_compressed
from healthd.checkpoints.formats.torch.plain_objects import is_plain
from healthd.checkpoints.formats.torch.torch_zip import verify_archive
from healthd.checkpoints.tree import Damaged, File, Tree, filename_of, folder_of, inside, read_at
from healthd.checkpoints.workers import alone, for_each
from healthd.pickles.read import BadPickle, Built, read_pickle

LARGEST_METADATA = 256 << 20
"""Bytes, as a rule 140 for each piece."""
MOST_INSTRUCTIONS = 150_000_000
"""About 60 for each piece."""
MOST_MEMORY = 160 << 20
"""Bytes besides the file itself: 64 for each piece, and the data about each tensor."""
MOST_LETTERS = 16 << 20
"""The limit of characters in the names of all tensors and files."""
_TOO_MUCH = 1 << 63
_DCP = "torch.distributed.checkpoint"
_ALLOWED = frozenset(
    f"{module}.{name}"
    for module, names in {
        f"{_DCP}.metadata": (
            "Metadata StorageMeta MetadataIndex ChunkStorageMetadata TensorStorageMetadata BytesStorageMetadata "
            "TensorProperties _MEM_FORMAT_ENCODING"
        ),
        f"{_DCP}.filesystem": "_StorageInfo _StoragePrefix",
        f"{_DCP}.planner": "SavePlan WriteItem WriteItemType TensorWriteData BytesIOWriteData",
        "megatron.core.dist_checkpointing.strategies.torch": "MCoreMetadata MCoreSavePlan",
        "torch.distributed._shard.sharded_tensor.metadata": "TensorProperties MEM_FORMAT_ENCODING",
        "torch": (
            "Size device float64 float32 float16 bfloat16 complex32 complex64 complex128 int64 int32 int16 int8 "
            "uint64 uint32 uint16 uint8 bool float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
            "float4_e2m1fn_x2 qint8 quint8 qint32 quint4x2 quint2x4 bits8 bits16"
        ),
        "torch.serialization": "_get_layout",
        "collections": "OrderedDict",
        "pathlib": "Path PosixPath PurePosixPath",
    }.items()
    for name in names.split()
)
"""All classes that torch writes into `.metadata`, with Megatron also its plans. Each is only recorded by name."""


_INDEX = f"{_DCP}.metadata.MetadataIndex"
_INFO = f"{_DCP}.filesystem._StorageInfo"


_METADATA = re.compile(r"(?:__\d{1,9})?\.metadata")
_DATA = re.compile(r"__(\d{1,9})_\d{1,9}\.distcp")
_START = 64
"""
The first bytes of a piece, which show its kind: no archive, pickle or compressed frame starts with so many zeros.
"""


_ZIP = b"PK\3\4"
_PLAIN, _COMPRESSED, _OTHERWISE = range(3)
"""The transformation of a piece: none, `ZSTD`, or one that this version does not know."""


class _Piece(NamedTuple):
    offset: int
    length: int
    transformed: int
    """The transformation of the piece. It need not be an archive."""
    is_object: bool
    """Not a tensor: an object as the planner stored it, as a rule also an archive."""


class _Extents:
    """The pieces in one file, in 21 bytes each: a large model on hundreds of ranks has a million."""

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._lengths = array("Q")
        self._keys = array("I")
        self._transformed = array("b")

    def add(self, offset: int, length: int, key: int, *, transformed: int) -> None:
        self._offsets.append(offset)
        self._lengths.append(length)
        self._keys.append(key)
        self._transformed.append(transformed)

    def pieces(self, objects: Container[int]) -> list[_Piece]:
        """All pieces. *objects* are the keys that are not tensors."""
        columns = zip(self._offsets, self._lengths, self._keys, self._transformed, strict=True)
        return [_Piece(offset, length, how, key in objects) for offset, length, key, how in columns]


class _Stored:
    """Collects `storage_data` while the metadata is read: for each piece its key and its position."""

    nothing = frozenset(
        {"torch.Size", f"{_DCP}.metadata.ChunkStorageMetadata"}
        | {f"{_DCP}.planner.{name}" for name in ("WriteItem", "TensorWriteData", "BytesIOWriteData")}
    )
    short = frozenset({_INDEX, _INFO})

    def __init__(self, name: str) -> None:
        self._name = name
        self._letters = 0
        self.keys: dict[str, int] = {}
        """In the order of arrival."""
        self.files: dict[str, _Extents] = defaultdict(_Extents)
        """By the path in the metadata."""

    def complete(self, built: Built) -> None:
        if built.name == _INDEX:
            built.state = _fields(built, self._name).get("fqn")
        elif built.name == _INFO:
            built.state = _parse_info(_fields(built, self._name), self._name)

    def take(self, key: Any, value: Any) -> bool:
        if not (isinstance(key, Built) and isinstance(value, Built) and isinstance(value.state, _Info)):
            return False
        if not isinstance(key.state, str):
            raise Damaged(f"{self._name}: a piece without a name")
        path, offset, length, transformed = value.state
        self._letters += len(key.state) * (key.state not in self.keys) + len(path) * (path not in self.files)
        if self._letters > MOST_LETTERS:
            raise Damaged(f"{self._name}: names of more than {MOST_LETTERS:,} letters")
        number = self.keys.setdefault(key.state, len(self.keys))
        self.files[path].add(offset, length, number, transformed=transformed)
        return True


class _Info(NamedTuple):
    path: str
    offset: int
    length: int
    transformed: int


class TorchDcp:
    """Each `.metadata` can be read, and every piece that it names is inside a file that exists."""

    name = "torch_dcp"

    def owns(self, filename: str) -> bool:
        """The metadata and the data files, so that a directory without metadata is recognised, too."""
        return _METADATA.fullmatch(filename) is not None or filename.endswith(".distcp")

    def detect(self, tree: Tree) -> bool:
        """Any file of this format."""
        return any(self.owns(filename_of(name)) for name in tree.kinds)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK reads the metadata and checks sizes. FULL reads every piece. Raises Damaged."""
        described = [name for name in sorted(tree.entries) if _METADATA.fullmatch(filename_of(name))]
        _refuse_undescribed(set(described), [name for name in sorted(tree.entries) if name.endswith(".distcp")])
        for name in described:
            with alone(tree.size(name)):
                pieces = read_metadata(tree, name)
            files = sorted(pieces.items(), key=itemgetter(0))
            for_each(partial(_verify_file, tree, level), files, at_once=tree.at_once)


def _refuse_undescribed(described: set[str], written: list[str]) -> None:
    """A folder has one `.metadata`, or one per rank when the ranks saved without coordination."""
    folders = {folder_of(name) for name in described}
    for name in written:
        folder = f"{folder_of(name)}/".lstrip("/")
        rank = _DATA.fullmatch(filename_of(name))
        own = f"{folder}__{rank[1]}.metadata" if rank and folder_of(name) in folders else f"{folder}.metadata"
        if f"{folder}.metadata" not in described and own not in described:
            raise Damaged(f"{own}: missing; it is written last (save not finished)")


def read_metadata(tree: Tree, name: str) -> dict[str, Callable[[], list[_Piece]]]:
    """Functions that return the pieces of each listed file in the metadata. Raises Damaged."""
    stored = _Stored(name)
    try:
        raw = tree.read(name, at_most=LARGEST_METADATA)
        metadata = _fields(read_pickle(raw, _ALLOWED, most=MOST_INSTRUCTIONS, memory=MOST_MEMORY, fold=stored), name)
    except BadPickle as error:
        raise Damaged(f"{name}: {error}") from error
    kinds = metadata.get("state_dict_metadata")
    if not isinstance(kinds, dict) or not stored.files:
        raise Damaged(f"{name}: names no stored data")
    if metadata.get("storage_data"):
        raise Damaged(f"{name}: a piece without path, offset and length")
    _refuse_unstored(kinds, stored.keys, name)
    _refuse_misnamed(metadata.get("planner_data"), name)
    objects = frozenset(number for key, number in stored.keys.items() if _is_object(kinds.get(key)))
    return {
        inside(folder_of(name), path, named_by=name): partial(extents.pieces, objects)
        for path, extents in stored.files.items()
    }


def _refuse_unstored(kinds: dict[Any, Any], stored: Container[str], name: str) -> None:
    for key, kind in kinds.items():
        if not isinstance(key, str):
            raise Damaged(f"{name}: something stored without a name")
        has_data = _is_object(kind) or bool(_fields(kind, name).get("chunks"))
        if has_data and key not in stored:
            raise Damaged(f"{name}: does not say where {key!r:.80} is stored")


def _refuse_misnamed(paths: Any, name: str) -> None:
    """
    Torch's planner records for each key its path in the state. Joined by dots, the path is the key. Other planners
    record other data.

    After a changed letter in either, the loader would look for a key that does not exist.
    """
    if not isinstance(paths, dict):
        return
    wrong = [key for key, path in paths.items() if not _is_joined(key, path)]
    if wrong and len(wrong) < len(paths):
        raise Damaged(f"{name}: the key {wrong[0]!r:.80} does not match its path {paths[wrong[0]]!r:.120}")


def _is_joined(key: Any, path: Any) -> bool:
    return isinstance(path, tuple) and ".".join(map(str, path)) == key


def _is_object(kind: Any) -> bool:
    """Whether the metadata of a key describes an object, and not a tensor."""
    return isinstance(kind, Built) and kind.name.endswith(".BytesStorageMetadata")


def _fields(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Built) or not isinstance(value.state, dict):
        raise Damaged(f"{name}: not the metadata of torch.distributed.checkpoint")
    return value.state


def _parse_info(fields: dict[str, Any], name: str) -> _Info:
    match fields:
        case {"relative_path": str(path), "offset": int(offset), "length": int(length)} if (
            0 <= offset < _TOO_MUCH and 0 <= length < _TOO_MUCH
        ):
            return _Info(path, offset, length, _transformation(fields.get("transform_descriptors")))
        case _:
            raise Damaged(f"{name}: a piece without path, offset and length")


def _transformation(descriptors: Any) -> int:
    if not descriptors:
        return _PLAIN
    return _COMPRESSED if descriptors == [ZSTD] else _OTHERWISE


def _verify_file(tree: Tree, level: VerifyLevel, item: tuple[str, Callable[[], list[_Piece]]]) -> None:
    name, pieces = item[0], item[1]()
    size = tree.size(name)
    needed = max(piece.offset + piece.length for piece in pieces)
    _refuse_overlaps(name, pieces)
    if size < needed:
        raise Damaged(f"{name}: {size:,} of {needed:,} bytes (torn write)")
    if level is VerifyLevel.FULL:
        with tree.open(name) as file:
            for piece in pieces:
                _verify_piece(file, name, piece)


def _refuse_overlaps(name: str, pieces: list[_Piece]) -> None:
    """No writer makes overlaps. Without them, no metadata can make the same bytes be read repeatedly."""
    end = 0
    for piece in sorted(pieces):
        if piece.offset < end:
            raise Damaged(f"{name}: two pieces share byte {piece.offset:,}")
        end = piece.offset + piece.length


def _verify_piece(file: File, name: str, piece: _Piece) -> None:
    if not piece.length:
        return
    start = read_at(file, name, offset=piece.offset, size=min(piece.length, _START))
    if start.startswith(_ZIP):
        verify_archive(zips.Slice.at(file, name, piece.offset, piece.length), VerifyLevel.FULL)
    elif not start.strip(b"\0"):
        raise Damaged(f"{name}: zeros at byte {piece.offset:,}, where {_what(piece)} should begin (torn write)")
    elif piece.transformed == _COMPRESSED:
        verify_compressed(file, name, piece.offset, piece.length)
    elif piece.transformed == _PLAIN and not (piece.is_object and is_plain(file, name, piece.offset, piece.length)):
        raise Damaged(f"{name}: other bytes at byte {piece.offset:,}, where {_what(piece)} should begin (torn write)")


def _what(piece: _Piece) -> str:
    return "an object" if piece.is_object else "a tensor"
