"""
Safetensors files that the ranks write each for itself, such as `shard-00002-model-00001-of-00003.safetensors`:
torch.distributed.checkpoint's `HuggingFaceStorageWriter` with `save_distributed`, which writes no index.

A rank writes the files for which it has a part of a tensor, and its header says where each part begins in the whole
tensor. The loader takes the tensors for as large as their parts reach. So a file that was lost is seen by the elements
that no part has; that of the last rank alone is seen only beside other steps (`members`).

Source: torch/distributed/checkpoint/hf_storage.py.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from healthd.checkpoints.encodings.safetensors_headers import Tensor, metadata_of
from healthd.checkpoints.tree import Damaged, filename_of, folder_of

_OF_A_RANK = re.compile(r"(?:(?<=/)|^)shard-\d{5}-(?!of-)")
_SHARDING = "DCP_SHARDING_INFO"


class _Part(msgspec.Struct):
    saved_offsets: list[int]


_PARTS = msgspec.json.Decoder(dict[str, _Part])


def without_rank(name: str) -> str:
    """The name without the rank that wrote the file: the same for the parts of one file of the whole model."""
    return _OF_A_RANK.sub("", name)


@dataclass(slots=True)
class _Whole:
    """What the parts of one tensor are together."""

    ends: list[int] = field(default_factory=list)
    elements: int = 0

    def add(self, offsets: list[int], shape: list[int]) -> None:
        ends = [offset + length for offset, length in zip(offsets, shape, strict=True)]
        self.ends = list(map(max, self.ends, ends)) if self.elements else ends
        self.elements += math.prod(shape)


class RankShards:
    """Collects the parts of tensors, from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wholes: dict[tuple[str, str], _Whole] = {}

    def add(self, name: str, header: bytes, tensors: Mapping[str, Tensor]) -> None:
        """Count the parts in the file *name*, if a rank wrote it for itself. Raises Damaged."""
        if not _OF_A_RANK.match(filename_of(name)):
            return
        try:
            parts = _PARTS.decode(metadata_of(header).get(_SHARDING, "{}"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Damaged(f"{name}: its header does not say where its parts of tensors belong") from error
        with self._lock:
            for tensor, entry in tensors.items():
                offsets = parts[tensor].saved_offsets if tensor in parts else [0] * len(entry.shape)
                whole = self._wholes.setdefault((folder_of(name), tensor), _Whole())
                if len(offsets) != len(entry.shape) or (whole.elements and len(whole.ends) != len(offsets)):
                    raise Damaged(f"{name}: its part of {tensor[:80]!r} is not of as many dimensions as the others")
                whole.add(offsets, entry.shape)

    def refuse_gaps(self) -> None:
        """Raise Damaged when a tensor has elements that are in no file."""
        for (folder, tensor), whole in sorted(self._wholes.items()):
            if whole.elements < math.prod(whole.ends):
                raise Damaged(
                    f"{folder or '.'}: {whole.elements:,} of {math.prod(whole.ends):,} elements of {tensor[:80]!r} "
                    "are here; the file of a rank is missing"
                )
