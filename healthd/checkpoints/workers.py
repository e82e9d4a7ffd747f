"""Check many files at once: over a network each answer is waited for, and checksums run beside the GIL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def for_each(check: Callable[[T], R], items: Sequence[T], *, at_once: int = 4) -> list[R]:
    """The answers in order, *at_once* asked for at a time. The first error, in order, is raised and ends the rest."""
    if len(items) < 2:
        return [check(item) for item in items]
    size = -(-len(items) // (at_once * 4))
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    with ThreadPoolExecutor(min(at_once, len(batches)), thread_name_prefix="checkpoints") as pool:
        return [
            answer for answers in pool.map(lambda batch: [check(item) for item in batch], batches) for answer in answers
        ]
