"""
Models of Keras: the archive `.keras`, and HDF5 as `.weights.h5` or `.h5`.

An archive is stored, not deflated, and its directory is written last. The weights inside are HDF5, covered by the
archive's CRC-32. HDF5 alone has no checksum of its data: its structure is walked (see `hdf5`). Sharded weights have an
index, `.weights.json`, which is rewritten with each shard. So a complete index may list only the first shards, but
then the bytes that it counts are more than those shards have. Source: keras/src/saving/saving_lib.py and
legacy_h5_format.py.
"""

from __future__ import annotations

from functools import partial

import msgspec

from healthd.checkpoints.encodings import hdf5, zips
from healthd.checkpoints.encodings.jsons import refuse_too_many_values
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree, folder_of, inside
from healthd.checkpoints.windows import Window, open_window
from healthd.checkpoints.workers import for_each

CONFIG = b"config.json"
WEIGHTS = (b"model.weights.h5", b"model.weights.npz")
_ARCHIVE = ".keras"
_HDF5 = (".h5", ".hdf5")
INDEX = ".weights.json"
LARGEST_INDEX = 64 << 20
MOST_IN_INDEX = 2_000_000


class _Metadata(msgspec.Struct):
    total_size: float
    """Bytes of all arrays, without the overhead of HDF5."""


class _Index(msgspec.Struct):
    metadata: _Metadata
    weight_map: dict[str, str | list[str]]
    """Group to the shards that have a part of it."""


class Keras:
    """Each archive has a configuration and weights, and each HDF5 file has its complete structure."""

    name = "keras"

    def owns(self, filename: str) -> bool:
        """By suffix."""
        return filename.endswith((_ARCHIVE, *_HDF5, INDEX))

    def detect(self, tree: Tree) -> bool:
        """Any file with the suffix."""
        return any(self.owns(name) for name in tree.kinds)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK walks the structure. FULL also reads every byte of an archive. Raises Damaged."""
        names = sorted(name for name in tree.entries if self.owns(name))
        for index in (name for name in names if name.endswith(INDEX)):
            _refuse_missing_shards(tree, index)
        files = [name for name in names if not name.endswith(INDEX)]
        for_each(partial(_verify_file, tree, level), files, at_once=tree.at_once)


def _refuse_missing_shards(tree: Tree, name: str) -> None:
    raw = tree.read(name, at_most=LARGEST_INDEX)
    refuse_too_many_values(raw, name, most=MOST_IN_INDEX)
    try:
        index = msgspec.json.decode(raw, type=_Index)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{name}: not a whole index of shards (torn write)") from error
    declared = {file for files in index.weight_map.values() for file in ([files] if isinstance(files, str) else files)}
    shards = [inside(folder_of(name), file, named_by=name) for file in sorted(declared)]
    size = sum(tree.size(shard) for shard in shards)
    if size < index.metadata.total_size:
        counted = f"{index.metadata.total_size:,.0f}"
        raise Damaged(f"{name}: counts {counted} bytes, its {len(shards):,} shards have {size:,} (save not finished)")


def _verify_file(tree: Tree, level: VerifyLevel, name: str) -> None:
    if not name.endswith(_ARCHIVE):
        with open_window(tree, name) as window:
            hdf5.verify_file(window)
        return
    with tree.open(name) as file:
        _verify_archive(zips.Slice.at(file, name, 0, tree.size(name)), level)


def _verify_archive(archive: zips.Slice, level: VerifyLevel) -> None:
    members = {member.name: member for member in zips.read_members(archive, deflated=True)}
    if CONFIG not in members:
        raise Damaged(f"{archive.name}: an archive without config.json, not written by Keras")
    weights = next((members[name] for name in WEIGHTS if name in members), None)
    if weights is None:
        raise Damaged(f"{archive.name}: an archive without weights")
    if weights.is_stored and weights.name == WEIGHTS[0]:
        read = partial(_read_member, archive, weights)
        hdf5.verify_file(Window(read, f"{archive.name}: {zips.text(weights.name)}", weights.size))
    if level is VerifyLevel.FULL:
        for member in members.values():
            zips.check_data(archive, member)


def _read_member(archive: zips.Slice, member: zips.ZipMember, offset: int, size: int) -> bytes:
    return archive.read(member.data + offset, size)
