"""
Folders of Ray Train (`checkpoint_000004`) with what any framework wrote, and Ray's own `.metadata.json`.

Ray takes note of a checkpoint only after every worker's files are there, but copies them into the folder one by one. So
what Ray adds proves nothing: something of a known format must be in it, and has to hold by that.
Source: python/ray/train/_checkpoint.py and ray/train/_internal/storage.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.checkpoints.formats.format import Format, Level
from healthd.checkpoints.tree import Damaged, Tree

METADATA = ".metadata.json"
LARGEST_METADATA = 16 << 20
_OLDER = (".is_checkpoint", ".tune_metadata")


class Ray:
    """Ray's metadata is whole JSON, and stands beside something that can be verified."""

    name = "ray"

    def __init__(self, inner: Sequence[Format]) -> None:
        self._inner = inner
        """The formats that the workers may have written."""

    def owns(self, filename: str) -> bool:
        """Ray's own files."""
        return filename == METADATA or filename in _OLDER

    def detect(self, tree: Tree) -> bool:
        """Any such file directly in the folder."""
        return any(self.owns(name) for name in tree.entries)

    def verify(self, tree: Tree, level: Level) -> None:  # noqa: ARG002 - the formats inside read the rest
        """The same at both levels. Raises Damaged."""
        if METADATA in tree.entries:
            try:
                msgspec.json.decode(tree.read(METADATA, at_most=LARGEST_METADATA), type=dict[str, msgspec.Raw])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Damaged(f"{METADATA}: not whole JSON (torn write)") from error
        if not any(fmt.detect(tree) for fmt in self._inner):
            others = sorted(name for name in tree.entries if not self.owns(name))
            seen = ", ".join(others[:3]) or "nothing else"
            raise Damaged(f"a checkpoint of Ray with nothing of a known format in it ({seen})")
