"""
Lists of a checkpoint's files, made by its writer: names, sizes, checksums.

Two kinds. JSON with `files`, either `{"weights.bin": {"size": 4096, "sha256": "…"}}` or
`[{"name": "weights.bin", "size": 4096, "sha256": "…"}]`, where `sha256` is optional. Or the lines of `sha256sum` and
similar tools, `CHECKSUM  NAME`.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial

import msgspec

from healthd.checkpoints.encodings.jsons import refuse_too_many_values
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.tree import Damaged, File, Tree, inside, read_at
from healthd.checkpoints.workers import for_each

LARGEST_MANIFEST = 32 << 20
MOST_FILES = 250_000
_MOST_VALUES = 20 * MOST_FILES
_CHUNK = 1 << 20
_SUM = re.compile(r"\\?(?P<digest>[0-9a-fA-F]{32,128}) [ *](?P<name>.+)")
_ALGORITHMS = {32: "md5", 40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}
"""By the number of hexadecimal digits."""


class ManifestEntry(msgspec.Struct, kw_only=True):
    """The entry of one file in a manifest."""

    name: str = ""
    size: int | None = None
    digest: str = ""
    """In hexadecimal. Empty when there is none."""
    algorithm: str = "sha256"


class _Sized(msgspec.Struct):
    size: int
    name: str = ""
    sha256: str = ""


class _Manifest(msgspec.Struct):
    files: list[_Sized] | dict[str, _Sized]


def read_manifest(tree: Tree, name: str) -> list[ManifestEntry]:
    """The files in the manifest *name*, each once and by its listed name in the tree. Raises Damaged."""
    raw = tree.read(name, at_most=LARGEST_MANIFEST)
    found = _parse_json(raw, name) if raw.lstrip()[:1] == b"{" else _parse_sums(raw, name)
    if not found:
        raise Damaged(f"{name}: names no file")
    if len({listed.name for listed in found}) < len(found):
        raise Damaged(f"{name}: names a file twice")
    return [msgspec.structs.replace(listed, name=inside("", listed.name, named_by=name)) for listed in found]


def verify_manifest(tree: Tree, level: VerifyLevel, name: str) -> None:
    """QUICK compares sizes, FULL also checksums. Raises Damaged."""
    listed = read_manifest(tree, name)
    for_each(partial(_verify_file, tree, level, name), listed, at_once=tree.at_once)


def _parse_json(raw: bytes, name: str) -> list[ManifestEntry]:
    refuse_too_many_values(raw, name, most=_MOST_VALUES)
    try:
        files = msgspec.json.decode(raw, type=_Manifest).files
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{name}: not a whole manifest of names and sizes (torn write)") from error
    named = [(entry.name, entry) for entry in files] if isinstance(files, list) else list(files.items())
    return [ManifestEntry(name=file, size=entry.size, digest=entry.sha256.lower()) for file, entry in named]


def _parse_sums(raw: bytes, name: str) -> list[ManifestEntry]:
    """The last line must end like all others, or the list was cut."""
    if raw.count(b"\n") > MOST_FILES:
        raise Damaged(f"{name}: names more than {MOST_FILES:,} files, too many to verify")
    found = []
    for line in raw.splitlines(keepends=True):
        match = _SUM.fullmatch(_text(line, name).rstrip("\r\n"))
        algorithm = _ALGORITHMS.get(len(match["digest"])) if match else None
        if match is None or algorithm is None or not line.endswith(b"\n"):
            raise Damaged(f"{name}: not a list of checksums and names (torn write)")
        found.append(ManifestEntry(name=match["name"], digest=match["digest"].lower(), algorithm=algorithm))
    return found


def _text(line: bytes, name: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise Damaged(f"{name}: not a list of checksums and names (torn write)") from error


def _verify_file(tree: Tree, level: VerifyLevel, manifest: str, listed: ManifestEntry) -> None:
    size = tree.size(listed.name)
    if listed.size is not None and size != listed.size:
        torn = " (torn write)" if size < listed.size else ""
        raise Damaged(f"{listed.name}: {size:,} of {listed.size:,} bytes{torn}")
    if level is VerifyLevel.FULL and listed.digest:
        with tree.open(listed.name) as file:
            if _digest(file, listed, size) != listed.digest:
                kind = listed.algorithm.upper().replace("SHA", "SHA-")
                raise Damaged(f"{listed.name}: its {kind} is not the one in {manifest}")


def _digest(file: File, listed: ManifestEntry, size: int) -> str:
    digest = hashlib.new(listed.algorithm, usedforsecurity=False)
    for offset in range(0, size, _CHUNK):
        digest.update(read_at(file, listed.name, offset=offset, size=min(_CHUNK, size - offset)))
    return digest.hexdigest()
