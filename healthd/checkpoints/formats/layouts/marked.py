"""
Plain step directories whose writer marks their completion: a marker file, or a manifest of names and sizes.

A manifest is `manifest.json` with `files` (see `manifests`). A marker proves that the writer finished, and nothing
about the bytes. It counts only when a user declared its name (`marked:DONE`).
"""

from __future__ import annotations

import msgspec

from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.layouts.manifests import LARGEST_MANIFEST, verify_manifest
from healthd.checkpoints.tree import Damaged, Tree

MANIFEST = "manifest.json"


class Marked:
    """The declared marker exists, and every file in the manifest, if there is one, matches it."""

    name = "marked"

    def __init__(self, marker: str = "") -> None:
        self.marker = marker
        """Name of the declared marker file at the top of the step. Empty: a manifest is required."""

    def owns(self, filename: str) -> bool:
        """The manifest and the declared marker."""
        return filename in {MANIFEST, self.marker}

    def detect(self, tree: Tree) -> bool:
        """A manifest of this kind. Always true with a declared marker, so that a step without it is refused."""
        return bool(self.marker) or _has_manifest(tree)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK compares sizes, FULL also SHA-256. Raises Damaged."""
        if self.marker:
            self._require_marker(tree)
        if not self.marker or _has_manifest(tree):
            verify_manifest(tree, level, MANIFEST)

    def _require_marker(self, tree: Tree) -> None:
        if self.marker not in tree.entries:
            raise Damaged(f"{self.marker}: missing; the writer makes it last (save not finished)")
        tree.require(self.marker)
        if not any(entry.stamp.size for name, entry in tree.entries.items() if name != self.marker):
            raise Damaged(f"{self.marker}: stands alone, without any data")


def _has_manifest(tree: Tree) -> bool:
    """
    Whether there is a manifest of this kind, or one that may be torn. A `manifest.json` of other tools does not count.
    """
    if MANIFEST not in tree.entries:
        return False
    try:
        return "files" in msgspec.json.decode(_read(tree), type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True


def _read(tree: Tree) -> bytes:
    return tree.read(MANIFEST, at_most=LARGEST_MANIFEST)
