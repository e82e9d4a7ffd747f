"""
Files of `torch.save`: zip archives with a pickle and one stored member per tensor.

The pickle is never loaded; the archive's own directory says whether the file is whole, and CRC-32 whether its bytes
are those that were written. Source: torch/serialization.py and caffe2/serialize/inline_container.cc of PyTorch.
"""

from __future__ import annotations

import re
from functools import partial

from healthd.checkpoints import zips
from healthd.checkpoints.formats.format import Level
from healthd.checkpoints.formats.safetensors import refuse_missing_shards
from healthd.checkpoints.tree import Damaged, Tree, filename_of, read_at
from healthd.checkpoints.workers import for_each

_SUFFIXES = (".pt", ".pth", ".ckpt")
_BIN = re.compile(r"(?:pytorch_model|model|adapter_model|optimizer|scheduler|training_args)[-_.\w]*\.bin")
"""Of `.bin` files only those under names that training libraries give to torch's: anybody may write a `.bin`."""
_LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."


class TorchZip:
    """Every file is a whole archive that holds a pickle."""

    name = "torch_zip"

    def owns(self, filename: str) -> bool:
        """By suffix."""
        return filename.endswith(_SUFFIXES) or _BIN.fullmatch(filename) is not None

    def detect(self, tree: Tree) -> bool:
        """Any file with the suffix."""
        return any(self.owns(filename_of(name)) for name in tree.entries)

    def verify(self, tree: Tree, level: Level) -> None:
        """QUICK reads the directory of each archive; FULL every byte. Raises Damaged."""
        names = sorted(name for name in tree.entries if self.owns(filename_of(name)))
        refuse_missing_shards(names)
        for_each(partial(_verify_file, tree, level), names)


def verify_archive(archive: zips.Slice, level: Level) -> None:
    """
    Raise Damaged when the archive is not whole, holds no pickle, or (FULL) a checksum does not match.

    After `torch.serialization.set_crc32_options(False)` every checksum is 0 and there is nothing to compare.
    """
    members = zips.read_members(archive)
    if not any(member.name.endswith(b"data.pkl") and member.size for member in members):
        raise Damaged(f"{archive.name}: an archive without data.pkl, not written by torch.save")
    written_with_checksums = any(member.crc for member in members)
    if level is Level.FULL and written_with_checksums:
        for member in members:
            zips.check_data(archive, member)


def _verify_file(tree: Tree, level: Level, name: str) -> None:
    size = tree.size(name)
    if not size:
        raise Damaged(f"{name}: empty file")
    with tree.open(name) as fd:
        _refuse_other_kinds(read_at(fd, name, offset=0, size=min(size, len(_LEGACY))), name)
        verify_archive(zips.Slice.at(fd, name, 0, size), level)


def _refuse_other_kinds(start: bytes, name: str) -> None:
    if start.startswith(b"PK\3\4"):
        return
    if start == _LEGACY:
        raise Damaged(f"{name}: torch's format from before 1.6, which has no checksum and cannot be verified")
    if not start.strip(b"\0"):
        raise Damaged(f"{name}: begins with zeros, never written (torn write)")
    raise Damaged(f"{name}: not a zip archive of torch.save")
