"""
Plain step directories whose writer says itself when it is done: a marker file, or a manifest of names and sizes.

A manifest is `manifest.json` with `files`, either `{"weights.bin": {"size": 4096, "sha256": "…"}}` or
`[{"name": "weights.bin", "size": 4096, "sha256": "…"}]`; `sha256` may be left out. A marker proves that the writer
came to its end, and nothing about the bytes; it counts only when a person declared its name (`marked:DONE`).
"""

from __future__ import annotations

import hashlib
from functools import partial

import msgspec

from healthd.checkpoints.formats.format import Level
from healthd.checkpoints.tree import Damaged, File, Tree, inside, read_at
from healthd.checkpoints.workers import for_each

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 64 << 20
_CHUNK = 1 << 20


class _Entry(msgspec.Struct):
    size: int
    name: str = ""
    sha256: str = ""


class _Listed(msgspec.Struct):
    files: list[_Entry] | dict[str, _Entry]


class Marked:
    """The declared marker is there, and every file of the manifest, where there is one, is as it says."""

    name = "marked"

    def __init__(self, marker: str = "") -> None:
        self.marker = marker
        """Name of the declared marker file at the top of the step; empty: a manifest is required."""

    def owns(self, filename: str) -> bool:
        """The manifest and the declared marker."""
        return filename in {MANIFEST, self.marker}

    def detect(self, tree: Tree) -> bool:
        """A manifest of this kind; always with a declared marker, so that a step without it is refused."""
        return bool(self.marker) or _has_manifest(tree)

    def verify(self, tree: Tree, level: Level) -> None:
        """QUICK compares sizes, FULL also SHA-256. Raises Damaged."""
        if self.marker:
            self._require_marker(tree)
        if not self.marker or _has_manifest(tree):
            for_each(partial(_verify_file, tree, level), read_manifest(tree), at_once=tree.at_once)

    def _require_marker(self, tree: Tree) -> None:
        if self.marker not in tree.entries:
            raise Damaged(f"{self.marker}: missing; the writer makes it last (save not finished)")
        tree.require(self.marker)
        if not any(entry.stamp.size for name, entry in tree.entries.items() if name != self.marker):
            raise Damaged(f"{self.marker}: stands alone, without any data")


def read_manifest(tree: Tree) -> list[_Entry]:
    """The files of the manifest under their listed names. Raises Damaged."""
    try:
        files = msgspec.json.decode(_read(tree), type=_Listed).files
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{MANIFEST}: not a whole manifest of names and sizes (torn write)") from error
    named = [(entry.name, entry) for entry in files] if isinstance(files, list) else list(files.items())
    if not named:
        raise Damaged(f"{MANIFEST}: names no file")
    if len({name for name, _ in named}) < len(named):
        raise Damaged(f"{MANIFEST}: names a file twice")
    return [
        msgspec.structs.replace(entry, name=inside("", name, told_by=MANIFEST), sha256=entry.sha256.lower())
        for name, entry in named
    ]


def _has_manifest(tree: Tree) -> bool:
    """Whether there is a manifest of this kind, or what may be a torn one; other tools' `manifest.json` say nothing."""
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


def _verify_file(tree: Tree, level: Level, listed: _Entry) -> None:
    size = tree.size(listed.name)
    if size != listed.size:
        torn = " (torn write)" if size < listed.size else ""
        raise Damaged(f"{listed.name}: {size:,} of {listed.size:,} bytes{torn}")
    if level is Level.FULL and listed.sha256:
        with tree.open(listed.name) as file:
            if _sha256(file, listed.name, size) != listed.sha256:
                raise Damaged(f"{listed.name}: its SHA-256 is not the one in {MANIFEST}")


def _sha256(file: File, name: str, size: int) -> str:
    digest = hashlib.sha256()
    for offset in range(0, size, _CHUNK):
        digest.update(read_at(file, name, offset=offset, size=min(_CHUNK, size - offset)))
    return digest.hexdigest()
