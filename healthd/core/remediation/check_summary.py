"""
The result of `healthd check` in few bytes, as a pod leaves it in its termination message. Pure.

Written by the check on the node, read by the controller: it is text from a node whose hardware, or more, is in doubt.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from healthd.core.printable import printable
from healthd.core.untrusted import InvalidText, read_json

LONGEST = 4096
"""Bytes of a termination message that a kubelet passes on."""
_LONGEST_BOOT_ID = 64
_LENGTHS = (300, 100, 40, 0)
"""Characters of each reason; the next smaller limit is used while the result is too large."""
INVENTORY = "inventory"
"""The check that counts the GPUs."""
UNDER_LOAD = frozenset({"pcie-bandwidth", "gpu-memory", "nccl", "dcgm"})
"""The checks that put load on every GPU. Without any of them, nothing was tried."""


class CheckSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a run of `healthd check` found."""

    result: str
    """`pass`, `fail`, `unchecked` or `busy`."""
    boot_id: str = ""
    """The boot in which it ran, as the kernel says it."""
    expected_gpus: int = -1
    """How many GPUs it was started for; -1: not stated."""
    gpus: int = 0
    """How many answered."""
    passed: list[str] = []
    """The names of the checks that passed."""
    failed: dict[str, str] = {}
    """Why each of the others failed."""
    skipped: dict[str, str] = {}
    """What each of the rest lacked."""
    busy: list[str] = []
    """What computes on the machine."""


def fitted(result: CheckSummary, most: int = LONGEST) -> bytes:
    """*result* in at most *most* bytes: its reasons are cut until it fits, then they are left out."""
    for length in _LENGTHS:
        result = _cut(result, length)
        if len(words := msgspec.json.encode(result)) <= most:
            return words
    return msgspec.json.encode(msgspec.structs.replace(result, skipped={}, busy=result.busy[:1], failed={}))


def read_result(message: str) -> CheckSummary | None:
    """The result in a termination message; None where it is none, or implausible."""
    if not message or len(message) > LONGEST:
        return None
    try:
        result = read_json(message, CheckSummary)
    except InvalidText:
        return None
    is_boot_id = len(result.boot_id) <= _LONGEST_BOOT_ID and result.boot_id.isprintable()
    return _cut(result, _LENGTHS[0]) if is_boot_id else None


def shortfall(result: CheckSummary, gpus: int) -> str:
    """Why a *result* that says `pass` is no proof that all *gpus* of a machine are well; empty: it is."""
    if result.failed or result.busy:
        return f"it says that it passed, and {words_of(result)}"
    if result.expected_gpus != gpus:
        return f"it was done for {result.expected_gpus} GPUs, and {gpus} are expected"
    if INVENTORY not in result.passed or result.gpus < gpus:
        return f"it counted {result.gpus} GPUs, and {gpus} are expected"
    if UNDER_LOAD.isdisjoint(result.passed):
        lacks = "; ".join(f"{name}: {why}" for name, why in result.skipped.items() if name in UNDER_LOAD)
        return f"no GPU was tried under load ({lacks or 'it does not say why'})"
    return ""


def words_of(result: CheckSummary) -> str:
    """What is wrong, for a person."""
    return "; ".join([*(f"{name}: {why}" for name, why in result.failed.items()), *result.busy])


def _cut(result: CheckSummary, length: int) -> CheckSummary:
    return msgspec.structs.replace(
        result,
        passed=[_short(name, length or 40) for name in result.passed],
        failed=_cut_reasons(result.failed, length),
        skipped=_cut_reasons(result.skipped, length),
        busy=_cut_all(result.busy, length),
    )


def _cut_reasons(reasons: dict[str, str], length: int) -> dict[str, str]:
    return {_short(name, 40): _short(why, length) for name, why in reasons.items()}


def _cut_all(texts: Iterable[str], length: int) -> list[str]:
    return [_short(text, length or 40) for text in texts]


def _short(text: str, length: int) -> str:
    return printable(text[:length])[:length]
