"""
NeMo's `.nemo`: a tar archive with `model_config.yaml` and the weights, one file or a folder of `torch_dist`.

NeMo's other checkpoints are folders of Megatron (`megatron`, `torch_dcp`), Lightning's files or Hugging Face's. The
marker `NAME-unfinished` beside a checkpoint is recognised by its name. The content of the archive is verified in
place. Source: nemo/core/connectors/save_restore_connector.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from healthd.checkpoints.encodings.tars import open_tar
from healthd.checkpoints.formats.format import Format, VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree, filename_of

CONFIG = "model_config.yaml"
_SUFFIX = ".nemo"


class NeMo:
    """Each archive is complete, has a configuration, and has weights that are valid in their own formats."""

    name = "nemo"

    def __init__(self, inner: Sequence[Format]) -> None:
        self._inner = inner
        """The formats that the weights may have."""

    def owns(self, filename: str) -> bool:
        """By suffix."""
        return filename.endswith(_SUFFIX)

    def detect(self, tree: Tree) -> bool:
        """Any file with the suffix."""
        return any(self.owns(name) for name in tree.entries)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK reads headers and directories. FULL reads every byte that has a checksum. Raises Damaged."""
        for name in sorted(name for name in tree.entries if self.owns(name)):
            archive = open_tar(tree, name)
            if not any(filename_of(member) == CONFIG for member in archive.entries):
                raise Damaged(f"{name}: an archive without {CONFIG}")
            try:
                self._verify_weights(archive, level)
            except Damaged as damage:
                raise type(damage)(f"{name}: {damage}") from damage

    def _verify_weights(self, archive: Tree, level: VerifyLevel) -> None:
        present = [fmt for fmt in self._inner if fmt.detect(archive)]
        if not present:
            raise Damaged("an archive without weights that healthd knows")
        for fmt in present:
            fmt.verify(archive, level)
