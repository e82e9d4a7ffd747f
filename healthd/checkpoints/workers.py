"""Check many files at once: over a network each answer is waited for, and checksums run beside the GIL."""

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
"""From so many items on it pays to see first whether their answers have to be waited for at all."""
LONG = 200e-6
"""Seconds for one item: about what a file in memory never takes, and one on another machine always does."""
PATIENCE = 0.05
"""Seconds that a busy machine may let anybody wait: so long nothing is made of it."""


LARGE = 1 << 20
"""Bytes from which on something is decoded alone: what is made of it may take a hundred times as much."""
_one_large = threading.RLock()


def alone(size: int) -> AbstractContextManager[object]:
    """Held while *size* bytes are decoded, and what was made of them: of large ones one at a time, in this process."""
    return _one_large if size > LARGE else nullcontext()


def for_each(check: Callable[[T], R], items: Sequence[T], *, at_once: int = 4) -> list[R]:
    """The answers in order, *at_once* asked for at a time. The first error, in order, is raised and ends the rest."""
    if len(items) < 2:
        return [check(item) for item in items]
    if len(items) < MANY:
        return _side_by_side(check, items, at_once)
    answers = _while_quick(check, items)
    return answers + _side_by_side(check, items[len(answers) :], at_once)


def _while_quick(check: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The answers up to where they take long: threads would only fight for the GIL over files that are in memory."""
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
