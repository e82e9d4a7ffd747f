"""
A layout that a user declares, for a writer that no other module supports: a few lines of YAML.

    steps: "snap_{step}"                         # the name of a step in its folder; {step} is its number
    files: ["weights-*.raw", "optim/{rank}.bin"]   # each exists and is not empty; {rank}: from 0 on, without a gap
    ranks: 8                                     # the required number of {rank}
    marker: DONE                                 # the writer makes it last
    manifest: SHA256SUMS                         # names, and sizes or checksums

Every line may be left out, but not all lines that say when a step is complete. Names are not regular expressions: `*`
stands for any characters within a name, at most three times (see `patterns`).
"""

from __future__ import annotations

import msgspec
import yaml

from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.layouts.manifests import read_manifest, verify_manifest
from healthd.checkpoints.formats.layouts.patterns import PLACE, Pattern
from healthd.checkpoints.tree import Damaged, Tree, filename_of

LONGEST = 4096
"""The limit of characters of a declaration."""
MOST_PATTERNS = 64
_MOST_STARS = 3
_MOST_BRACKETS = 2 * MOST_PATTERNS
"""One for each placeholder, and those around lists. The parser's time grows with the square of their depth."""


class BadDeclaration(ValueError):
    """The declared layout cannot be checked. The message says what to write instead."""


class Declaration(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The content of the YAML."""

    steps: str = ""
    files: tuple[str, ...] = ()
    ranks: int = 0
    marker: str = ""
    manifest: str = ""


class Custom:
    """Everything that was declared for a step exists, and matches its manifest."""

    name = "custom"

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration
        self._steps = _compile("steps", declaration.steps, {"step"}) if declaration.steps else None
        self._files = [_compile("files", written, {"rank"}) for written in declaration.files]
        self._own_names = [_compile("files", filename_of(written), {"rank"}) for written in declaration.files]

    def owns(self, filename: str) -> bool:
        """Marker, manifest, and the names that the declaration allows for files."""
        declared = (self.declaration.marker, self.declaration.manifest)
        return filename in declared or any(pattern.match(filename) is not None for pattern in self._own_names)

    def names(self, tree: Tree) -> set[str]:
        """The files of *tree* that match `files`, and those in the manifest. Raises Damaged."""
        named = {name for name in tree.entries if any(pattern.match(name) is not None for pattern in self._files)}
        if self.declaration.manifest:
            named.update(listed.name for listed in read_manifest(tree, self.declaration.manifest))
        return named

    def step_of(self, name: str) -> int | None:
        """The number in the name of a step. None when it is not a step. Without `steps`, the usual names count."""
        match = self._steps.match(name) if self._steps else None
        return match[0] if match else None

    @property
    def names_steps(self) -> bool:
        """Whether the declaration gives the names of steps."""
        return self._steps is not None

    def detect(self, tree: Tree) -> bool:  # noqa: ARG002 - declared, so an empty step is refused
        """Always true: it was declared."""
        return True

    def members(self, tree: Tree) -> int | None:
        """The number of rank files, unless the declaration gives it."""
        if self.declaration.ranks:
            return None
        ranks = [{rank for name in tree.entries for rank in pattern.match(name) or ()} for pattern in self._files]
        return max(map(len, ranks), default=0)

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK checks names and sizes. FULL also checks the checksums of the manifest. Raises Damaged."""
        if self.declaration.marker and self.declaration.marker not in tree.entries:
            raise Damaged(f"{self.declaration.marker}: missing; the writer makes it last (save not finished)")
        for pattern in self._files:
            _verify_pattern(tree, pattern, self.declaration.ranks)
        if self.declaration.manifest:
            verify_manifest(tree, level, self.declaration.manifest)
        if not any(entry.stamp.size for name, entry in tree.entries.items() if name != self.declaration.marker):
            raise Damaged("no data in it, or empty files only")


def parse_declaration(text: str) -> Custom:
    """The format that *text* declares, YAML of a mapping. Raises BadDeclaration."""
    if len(text) > LONGEST:
        raise BadDeclaration(f"the declaration of a checkpoint format has {len(text):,} letters, at most {LONGEST:,}")
    if text.count("{") + text.count("[") > _MOST_BRACKETS:
        raise BadDeclaration(f"the declaration of a checkpoint format has more than {_MOST_BRACKETS} brackets")
    try:
        # This loader reads all values as texts: with others, a few merged aliases take all memory, and a date may
        # raise.
        declaration = msgspec.convert(yaml.load(text, Loader=yaml.BaseLoader), type=Declaration, strict=False)
    except yaml.YAMLError as error:
        raise BadDeclaration(f"the declaration of a checkpoint format is no YAML: {_one_line(error)}") from error
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadDeclaration(
            f"the declaration of a checkpoint format: {_one_line(error)}; "
            "it may have steps, files, ranks, marker, manifest"
        ) from error
    _refuse_useless(declaration)
    return Custom(declaration)


def _refuse_useless(declaration: Declaration) -> None:
    if not (declaration.files or declaration.marker or declaration.manifest):
        raise BadDeclaration("the declaration of a checkpoint format names no file: give marker, manifest or files")
    if len(declaration.files) > MOST_PATTERNS or not 0 <= declaration.ranks <= 1_000_000:
        raise BadDeclaration(f"a checkpoint format has at most {MOST_PATTERNS} files and 1,000,000 ranks")
    for name in (declaration.marker, declaration.manifest):
        if "/" in name or name in {".", ".."}:
            raise BadDeclaration(f"{name}: marker and manifest of a checkpoint format lie directly in its folder")
    if declaration.ranks and not any("{rank}" in written for written in declaration.files):
        raise BadDeclaration("ranks of a checkpoint format need {rank} in the name of a file")


def _compile(field: str, written: str, places: set[str]) -> Pattern:
    """A name with `*` and one placeholder for a number. Raises BadDeclaration."""
    named = PLACE.findall(written)
    if set(named) - places or len(named) > 1 or written.count("*") > _MOST_STARS or not written:
        raise BadDeclaration(
            f"{field} of a checkpoint format: {written[:80]!r} may have {{{places.pop()}}} once, and * three times"
        )
    if field == "steps" and (not named or "/" in written):
        raise BadDeclaration(f"steps of a checkpoint format: {written[:80]!r} has no {{step}}, or has a / in it")
    return Pattern(written)


def _verify_pattern(tree: Tree, pattern: Pattern, ranks: int) -> None:
    matches = {name: match for name in sorted(tree.entries) if (match := pattern.match(name)) is not None}
    if not matches:
        raise Damaged(f"{pattern.written}: no file of such a name")
    for name in matches:
        if not tree.size(name):
            raise Damaged(f"{name}: empty file")
    found = {rank for match in matches.values() for rank in match}
    if found:
        count = ranks or max(found) + 1
        absent = next((rank for rank in range(count) if rank not in found), None)
        if absent is not None:
            raise Damaged(f"{pattern.written}: rank {absent} is missing; {len(found):,} of {count:,} are here")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
