"""
Files that a declared layout takes away from formats that recognise a file by its name alone.

A user who declares `files: ["model-*.bin"]` says that these files are of their own kind: torch's format, which uses
such names, too, must not refuse them. But a user may also declare files of `torch.save` to have their ranks counted,
and a torn one must not pass because of that. So a declared file is released only when it does not start as the
format's files do. A file that starts with zeros, as after a crash of its node, may have been one.
"""

from __future__ import annotations

from collections.abc import Collection

from healthd.checkpoints.formats.format import Format
from healthd.checkpoints.tree import Tree, filename_of
from healthd.checkpoints.windows import open_window

_ZIP = b"PK"
_BEGINNINGS: dict[str, tuple[bytes, ...]] = {
    "torch_zip": (_ZIP,),
    "keras": (_ZIP, b"\x89HDF"),
    "numpy": (_ZIP, b"\x93NUMPY"),
    "flax": (*(bytes([code]) for code in range(0x80, 0x90)), b"\xde", b"\xdf"),
    "xgboost": (b"{",),
    "lightgbm": (b"tree\n",),
}
"""
By format. Formats without a row here have names that do not occur by chance, and files that refer to each other.
"""
_HEAD_BYTES = 4096


def released(tree: Tree, fmt: Format, declared: Collection[str]) -> Tree:
    """The tree for *fmt*: without those of the *declared* files that are not of this format. Raises Damaged."""
    beginnings = _BEGINNINGS.get(fmt.name)
    if beginnings is None:
        return tree
    named = [name for name in declared if name in tree.entries and fmt.owns(filename_of(name))]
    foreign = {name for name in named if not _begins_like(tree, name, beginnings)}
    if not foreign:
        return tree
    kept = {name: entry for name, entry in tree.entries.items() if name not in foreign}
    return Tree(tree.path, tree.base, kept, tree.beside)


def _begins_like(tree: Tree, name: str, beginnings: tuple[bytes, ...]) -> bool:
    with open_window(tree, name) as window:
        start = window.at(0, min(_HEAD_BYTES, window.size))
    return start.startswith(beginnings) or not start.strip(b"\0")
