"""
Folders of Ray Train (`checkpoint_000004`) with the files of any framework, and Ray's own `.metadata.json`.

Workers copy their files into the folder one by one. After all of them, Ray's list beside the folders names the folder;
Ray resumes from nothing else. Without a list, as before version 2 of Train, Ray's files prove nothing: the folder must
contain a known format, and must be valid in it. Source: python/ray/train/_checkpoint.py and
ray/train/v2/_internal/execution/checkpoint/checkpoint_manager.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from healthd.checkpoints.formats.format import Format, VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree, Unfinished, survey

METADATA = ".metadata.json"
LARGEST_METADATA = 16 << 20
LIST = "checkpoint_manager_snapshot.json"
LARGEST_LIST = 16 << 20
_FOLDER = re.compile(r"checkpoint_\d[-_.\d]*")
_OLDER = (".is_checkpoint", ".tune_metadata")


class _Saved(msgspec.Struct):
    checkpoint_dir_name: str


class _List(msgspec.Struct):
    checkpoint_results: list[_Saved]


class Ray:
    """Ray's list, if there is one, names the folder. Its metadata is complete JSON, beside a known format."""

    name = "ray"

    def __init__(self, inner: Sequence[Format]) -> None:
        self._inner = inner
        """The formats that the workers may have written."""

    def owns(self, filename: str) -> bool:
        """Ray's own files."""
        return filename == METADATA or filename in _OLDER

    def detect(self, tree: Tree) -> bool:
        """Any such file directly in the folder, or a folder with Ray's name beside its list."""
        if any(self.owns(name) for name in tree.entries):
            return True
        named = tree.path == tree.base and _FOLDER.fullmatch(tree.path.name)
        return bool(named) and _list_beside(tree) is not None

    def verify(self, tree: Tree, level: VerifyLevel) -> None:  # noqa: ARG002 - the formats inside read the rest
        """The same at both levels. Raises Damaged."""
        _refuse_unlisted(tree)
        if METADATA in tree.entries:
            try:
                msgspec.json.decode(tree.read(METADATA, at_most=LARGEST_METADATA), type=dict[str, msgspec.Raw])
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise Damaged(f"{METADATA}: not whole JSON (torn write)") from error
        if not any(fmt.detect(tree) for fmt in self._inner):
            others = sorted(name for name in tree.entries if not self.owns(name))
            seen = ", ".join(others[:3]) or "nothing else"
            raise Damaged(f"a checkpoint of Ray with nothing of a known format in it ({seen})")


def _list_beside(tree: Tree) -> bytes | None:
    try:
        return survey(tree.path.parent / LIST).read(LIST, at_most=LARGEST_LIST)
    except Damaged:
        return None


def _refuse_unlisted(tree: Tree) -> None:
    """Raise Unfinished, which is not cached: the folder's files do not change when Ray adds the folder to its list."""
    raw = _list_beside(tree) if _FOLDER.fullmatch(tree.path.name) else None
    if raw is None:
        return
    try:
        saved = msgspec.json.decode(raw, type=_List).checkpoint_results
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return  # Ray does not resume from it either, so it proves nothing about this folder
    if all(each.checkpoint_dir_name != tree.path.name for each in saved):
        raise Unfinished(f"not in {LIST} beside it, where Ray notes each after its last worker (save not finished)")
