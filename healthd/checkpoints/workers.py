"""Check many files at once: on a network file system each answer is waited for, and checksums run beside the GIL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_WORKERS = 4
"""Hides the latency of a network file system; more only fight for the GIL when the files are in memory."""


def for_each(check: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The answers in order. The first error, in order, is raised and ends the rest."""
    if len(items) < 2:
        return [check(item) for item in items]
    size = -(-len(items) // (_WORKERS * 4))
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    with ThreadPoolExecutor(min(_WORKERS, len(batches)), thread_name_prefix="checkpoints") as pool:
        return [
            answer for answers in pool.map(lambda batch: [check(item) for item in batch], batches) for answer in answers
        ]
