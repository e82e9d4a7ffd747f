"""
Safetensors: one file, shards with an index, shards whose names give their number, or those of ranks (`rank_shards`).

A file is 8 bytes of header length (little endian), a JSON header, then the tensors' bytes without gap or overlap
(https://github.com/huggingface/safetensors#format). The format has no checksums: bytes that were changed in place
cannot be distinguished from weights. Only zeros at the end can be detected (see `zero_tails`). A shard of the same
shapes from another step cannot be detected either.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import partial

import msgspec

from healthd.checkpoints.encodings.jsons import refuse_too_many_values
from healthd.checkpoints.encodings.safetensors_headers import Tensor, judge_layout, parse_header, read_header
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.torch.pretrained import refuse_bad_configurations, refuse_lost_index
from healthd.checkpoints.formats.torch.rank_shards import RankShards, without_rank
from healthd.checkpoints.formats.torch.zero_tails import Layout, refuse_torn_end
from healthd.checkpoints.tree import Damaged, Tree, folder_of, inside
from healthd.checkpoints.workers import alone, for_each

LARGEST_INDEX = 64 << 20
_MOST_IN_INDEX = 2_000_000
"""The limit of values in an index. A tensor has five."""
_INDEX = re.compile(r"\.safetensors\.index(?:\.\w+)?\.json$")
"""With the name of a variant, such as `fp16`, if the weights have one."""
_SHARD = re.compile(r"(?P<stem>.*?)(?P<number>\d{1,9})-of-(?P<total>\d{1,9})(?P<rest>\D*)")


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


_Promises = dict[str, list[tuple[str, list[str]]]]
"""Listed file name to the indexes that name it, each with the tensors that the file should have."""


class Safetensors:
    """
    Every `*.safetensors` file is valid by itself, and together they are all that the index or their names require.
    """

    name = "safetensors"

    def owns(self, filename: str) -> bool:
        """By suffix."""
        return filename.endswith(".safetensors") or _INDEX.search(filename) is not None

    def detect(self, tree: Tree) -> bool:
        """Any file with the suffix."""
        return any(self.owns(name) for name in tree.kinds)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK reads headers and sizes. FULL also checks for zeros at the ends. Raises Damaged."""
        indexes = sorted(name for name in tree.entries if _INDEX.search(name))
        shards = sorted(name for name in tree.entries if name.endswith(".safetensors"))
        promises = _read_promises(tree, indexes)
        indexed = {folder_of(index) for index in indexes}
        refuse_missing_shards(name for name in shards if folder_of(name) not in indexed)
        refuse_lost_index(tree, shards)
        refuse_bad_configurations(tree, shards)
        of_ranks = RankShards()
        for_each(partial(_verify_file, tree, level, promises, of_ranks), shards, at_once=tree.at_once)
        of_ranks.refuse_gaps()


def refuse_missing_shards(names: Iterable[str]) -> None:
    """Raise Damaged when names such as `model-00001-of-00004` are incomplete. Numbers start at 0 or at 1."""
    groups: dict[tuple[str, str, str], dict[int, str]] = defaultdict(dict)
    for name in names:
        if match := _SHARD.fullmatch(without_rank(name)):
            groups[match["stem"], match["total"], match["rest"]][int(match["number"])] = match["number"]
    for (stem, total, rest), numbers in sorted(groups.items()):
        first = 0 if 0 in numbers else 1
        if len(numbers) == int(total) and max(numbers) == first + int(total) - 1:
            continue
        absent = next(number for number in range(first, first + len(numbers) + 1) if number not in numbers)
        width = len(next(iter(numbers.values())))
        raise Damaged(
            f"{stem}{absent:0{width}}-of-{total}{rest}: missing; {len(numbers)} of {int(total)} shards are here"
        )


def _verify_file(tree: Tree, level: VerifyLevel, promises: _Promises, of_ranks: RankShards, name: str) -> None:
    size = tree.size(name)
    with tree.open(name) as file:
        raw = read_header(file, name, size)
        with alone(len(raw)):
            tensors = parse_header(raw, name)
            _refuse_wrong_size(name, size, 8 + len(raw) + judge_layout(tensors, name))
            _refuse_missing_tensors(name, tensors, promises)
            of_ranks.add(name, raw, tensors)
            if level is VerifyLevel.FULL:
                refuse_torn_end(tree, file, name, Layout(8 + len(raw), size, tensors))


def _refuse_wrong_size(name: str, size: int, described: int) -> None:
    if size < described:
        raise Damaged(f"{name}: {size:,} of {described:,} bytes (torn write)")
    if size > described:
        raise Damaged(f"{name}: {size:,} bytes where its header describes {described:,}")


def _refuse_missing_tensors(name: str, tensors: dict[str, Tensor], promises: _Promises) -> None:
    for index, promised in promises.get(name, []):
        absent = next((tensor for tensor in promised if tensor not in tensors), None)
        if absent is not None:
            raise Damaged(f"{name}: has no tensor {absent[:80]!r}, which {index} puts there (a shard of another step?)")


def _read_promises(tree: Tree, indexes: list[str]) -> _Promises:
    """The entries of the indexes for each listed file. All those files exist. Raises Damaged."""
    promises: _Promises = defaultdict(list)
    for index in indexes:
        folder = folder_of(index)
        for file, tensors in read_index(tree, index).items():
            name = inside(folder, file, named_by=index)
            tree.require(name)
            if not name.endswith(".safetensors"):
                raise Damaged(f"{index}: names {file[:80]!r}, which is no safetensors file")
            promises[name].append((index, tensors))
    return promises


def read_index(tree: Tree, index: str) -> dict[str, list[str]]:
    """The tensors that an index of a Hugging Face model assigns to each file, files in order. Raises Damaged."""
    raw = tree.read(index, at_most=LARGEST_INDEX)
    refuse_too_many_values(raw, index, most=_MOST_IN_INDEX)
    try:
        weight_map = msgspec.json.decode(raw, type=_Index).weight_map
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{index}: not a whole index (torn write)") from error
    if not weight_map:
        raise Damaged(f"{index}: names no tensor")
    files: dict[str, list[str]] = defaultdict(list)
    for tensor, file in weight_map.items():
        files[file].append(tensor)
    return dict(sorted(files.items()))
