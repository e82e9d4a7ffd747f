"""Checks many files in parallel: over a network each answer takes time, and checksums run without the GIL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


MANY = 64
"""From this number of items on, a first measurement shows whether the answers take time at all."""
LONG = 200e-6
"""Seconds per item. A file in memory takes less, a file on another machine always takes more."""
PATIENCE = 0.05
"""Seconds of delay that a busy machine may cause. A shorter delay proves nothing."""


LARGE = 1 << 20
"""Bytes. Larger data is decoded one at a time: the result may take a hundred times as much memory."""
_one_large = threading.RLock()


def alone(size: int) -> AbstractContextManager[object]:
    """Hold this while *size* bytes are decoded and their result is used. Large data: one at a time in this process."""
    return _one_large if size > LARGE else nullcontext()


def for_each(check: Callable[[T], R], items: Sequence[T], *, at_once: int = 4) -> list[R]:
    """
    The answers in order, with *at_once* calls at a time. The first error, in order, is raised and ends the rest.
    """
    if len(items) < 2:
        return [check(item) for item in items]
    if len(items) < MANY:
        return _side_by_side(check, items, at_once)
    answers = _while_quick(check, items)
    return answers + _side_by_side(check, items[len(answers) :], at_once)


def _while_quick(check: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The answers while they are fast. For files in memory, threads would only compete for the GIL."""
    answers: list[R] = []
    start = monotonic()
    for item in items:
        answers.append(check(item))
        taken = monotonic() - start
        if taken > max(LONG * len(answers), PATIENCE):
            break
    return answers


def _side_by_side(check: Callable[[T], R], items: Sequence[T], at_once: int) -> list[R]:
    if not items:
        return []
    size = -(-len(items) // (at_once * 4))
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    with ThreadPoolExecutor(min(at_once, len(batches)), thread_name_prefix="checkpoints") as pool:
        return [
            answer for answers in pool.map(lambda batch: [check(item) for item in batch], batches) for answer in answers
        ]
