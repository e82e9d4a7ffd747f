"""
Files of `torch.save`: zip archives with a pickle and one stored member per tensor.

The pickle is never loaded. The archive's own directory shows whether the file is complete, and CRC-32 shows whether
its bytes are those that were written. Source: torch/serialization.py and caffe2/serialize/inline_container.cc of
PyTorch.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial

from healthd.checkpoints.encodings import zips
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.torch.pretrained import refuse_bad_configurations, refuse_lost_index
from healthd.checkpoints.formats.torch.safetensors import read_index, refuse_missing_shards
from healthd.checkpoints.torch_state import LARGEST_PICKLE, MOST_INSTRUCTIONS, MOST_MEMORY, open_archive
from healthd.checkpoints.tree import Damaged, Tree, filename_of, folder_of, inside
from healthd.checkpoints.workers import alone, for_each
from healthd.pickles.read import EVERYTHING, BadPickle, Garbled, read_pickle

_SUFFIXES = (".pt", ".pth", ".ckpt", ".pth.tar", ".pt.tar", ".ckpt.tar", ".pyth", ".chkpt", ".th")
"""Those that PyTorch's examples, timm and PySlowFast give to files of `torch.save`. A `.tar` alone may hold data."""
_BIN = re.compile(
    r"(?:(?:diffusion_)?pytorch_model|model|adapter_model|optimizer|scheduler|sampler|dl_state_dict|training_args)[-_.\w]*\.bin"
)
"""Of `.bin` files, only names that training libraries give to torch's files: other programs also write `.bin`."""
_INDEX = ".bin.index.json"
_PROTOCOL, _STOP = b"\x80", b"."
"""The first and the last instruction of a pickle since protocol 2. Torch writes no older protocol."""


class TorchZip:
    """Every file is a complete archive that holds a pickle, and all files in a model's index exist."""

    name = "torch_zip"

    def owns(self, filename: str) -> bool:
        """By suffix. `.bin` only with the names of torch."""
        return filename.endswith((*_SUFFIXES, _INDEX)) or _BIN.fullmatch(filename) is not None

    def detect(self, tree: Tree) -> bool:
        """Any file with the suffix."""
        return any(self.owns(filename_of(name)) for name in tree.kinds)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK reads the directory of each archive. FULL reads every byte. Raises Damaged."""
        owned = tree.owned(self.owns)
        names = [name for name in owned if not name.endswith(_INDEX)]
        for index in (name for name in owned if name.endswith(_INDEX)):
            for file in read_index(tree, index):
                tree.require(inside(folder_of(index), file, named_by=index))
        refuse_missing_shards(names)
        refuse_lost_index(tree, names)
        refuse_bad_configurations(tree, names)
        for_each(partial(verify_file, tree, level), names, at_once=tree.at_once)


def verify_archive(archive: zips.Slice, level: VerifyLevel) -> None:
    """
    Raise Damaged when the archive is not complete, holds no pickle, or (FULL) a checksum does not match.

    After `torch.serialization.set_crc32_options(False)` every checksum is 0. Then only the pickle is read.
    """
    members = zips.read_members(archive)
    pickle = next((member for member in members if member.name.endswith(b"data.pkl") and member.size), None)
    if pickle is None:
        raise Damaged(f"{archive.name}: an archive without data.pkl, not written by torch.save")
    if level is not VerifyLevel.FULL:
        return
    if not any(member.crc for member in members):
        _refuse_no_pickle(archive, pickle)
        return
    for member in members:
        zips.check_data(archive, member)


def _refuse_no_pickle(archive: zips.Slice, pickle: zips.ZipMember) -> None:
    """A pickle without a checksum is read as data. A large or unusual one is judged by its two ends."""
    first, last = archive.read(pickle.data, 1), archive.read(pickle.data + pickle.size - 1, 1)
    is_whole = first == _PROTOCOL and last == _STOP
    if is_whole and pickle.size <= LARGEST_PICKLE:
        with alone(pickle.size), suppress(BadPickle):
            try:
                raw = archive.read(pickle.data, pickle.size)
                read_pickle(raw, EVERYTHING, most=MOST_INSTRUCTIONS, memory=MOST_MEMORY)
            except Garbled:
                is_whole = False
    if not is_whole:
        raise Damaged(f"{archive.name}: {zips.text(pickle.name)} is no whole pickle (torn write)")


def verify_file(tree: Tree, level: VerifyLevel, name: str) -> None:
    """Raise Damaged when the file *name* is not one complete archive of `torch.save`."""
    with tree.open(name) as file:
        verify_archive(open_archive(file, name, tree.size(name)), level)
