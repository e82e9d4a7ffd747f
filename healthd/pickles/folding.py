"""
Reads pickles of a million objects of which little is needed: each object is reduced (folded) when it is complete.

A pickle numbers nearly everything it makes, for later references. So a first pass finds the numbers that are
referenced; nothing else is kept. The memory counted for a folded part is returned to the limit, as far as nothing of
it is kept.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any, Protocol

from healthd.pickles.machine import BadPickle, Built, Named, PickleMachine, PickleSource

SKIMMED = 1 << 20
"""A pickle of at least this size gets the first pass. For smaller ones everything is kept, within the same limit."""
_TAKEN = 64
"""The estimated bytes of an item that was taken."""
_REFERENCE = 8
_TEXT = 56

_NO_ARGUMENT = b"(.012NQRabde)]}lstu\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94"
_RUN = re.compile(rb"(?s:[" + re.escape(_NO_ARGUMENT.replace(b".", b"")) + rb"]|[Khq\x80].|M..|[Jr].{4}|[G\x95].{8})++")
"""Instructions of fixed length that reference no number larger than a byte."""
_LENGTHS = {ord("X"): 4, 0x8C: 1, 0x8D: 8, ord("B"): 4, ord("C"): 1, 0x8E: 8, 0x8A: 1, 0x8B: 4}
"""The number of length bytes of each instruction."""
_LONG_GET, _GLOBAL, _STOP = ord("j"), ord("c"), ord(".")
_SMALL_NUMBERS = 256


class Folded:
    """The placeholder for an object of which nothing is needed."""

    __slots__ = ()


FOLDED = Folded()


class Fold(Protocol):
    """What a reader needs of the objects in a pickle."""

    @property
    def nothing(self) -> Container[str]:
        """Full names of the classes of which nothing is needed."""

    @property
    def short(self) -> Container[str]:
        """Full names of the classes of which `complete` leaves a few bytes."""

    def complete(self, built: Built) -> None:
        """An object has its state now. It may be reduced here. May raise."""

    def take(self, key: Any, value: Any) -> bool:
        """Take an item of a dictionary, which then does not get it. False: the reader does not take it."""


def skim(data: bytes) -> bytearray:
    """For each number whether *data* may reference it. Ends where the bytes are no pickle."""
    asked = bytearray(b"\1" * _SMALL_NUMBERS)
    at = 0
    while at < len(data):
        run = _RUN.match(data, at)
        at = run.end() if run else _skip(data, at, asked)
    return asked


def _skip(data: bytes, at: int, asked: bytearray) -> int:
    """
    The offset of the next instruction, after one at *at* that is not part of a run. An unknown instruction is the end.
    """
    code, at = data[at], at + 1
    if code == _LONG_GET:
        _ask(asked, int.from_bytes(data[at : at + 4], "little"), most=len(data))
        return at + 4
    if (width := _LENGTHS.get(code)) is not None:
        return at + width + int.from_bytes(data[at : at + width], "little")
    if code == _GLOBAL:
        for _ in range(2):
            at = data.find(b"\n", at) + 1 or len(data)
        return at
    return len(data)


def _ask(asked: bytearray, number: int, *, most: int) -> None:
    """Mark a reference. A number beyond *most* cannot exist: the pickle has no space for so many instructions."""
    if number < most:
        asked.extend(bytes(max(0, number + 1 - len(asked))))
        asked[number] = 1


class Folding(PickleMachine):
    """Runs a pickle for *fold*. *asked* are the referenced numbers; None when they are not known."""

    def __init__(
        self, data: PickleSource, allowed: Container[str], most: int, memory: int, fold: Fold, asked: bytearray | None
    ) -> None:
        super().__init__(data, allowed, most, memory)
        self._fold = fold
        self._asked = asked
        self._puts = 0
        self._kept: dict[int, Any] = {}
        self._texts = 0
        """Bytes of the texts and short objects that are kept for later."""
        self._others = 0
        """The number of values kept for later, or referenced again, whose size or later size is unknown."""
        self._marks: list[tuple[int, int, int]] = []
        """At each open mark: the remaining memory, and the two counters above."""
        self._before = (0, 0, 0)
        """The same, at the mark that was closed last."""

    def mark(self) -> None:
        super().mark()
        self._marks.append((self.room, self._texts, self._others))

    def since_mark(self) -> list[Any]:
        self._before = self._marks.pop()
        return super().since_mark()

    def put(self, number: int) -> None:
        self._puts += 1
        value = self.stack[-1]
        if value is FOLDED or (self._asked is not None and not (number < len(self._asked) and self._asked[number])):
            return
        self._kept[number] = value
        if isinstance(value, str):
            self._texts += _TEXT + 4 * len(value)
        elif self._is_short(value):
            self._texts += _TAKEN
        elif not isinstance(value, Named):
            self._others += 1

    def get(self, number: int) -> Any:
        if number >= self._puts:
            raise KeyError(number)
        value = self._kept.get(number, FOLDED)
        if not (value is FOLDED or isinstance(value, str | Named) or self._is_short(value)):
            self._others += 1  # it may grow now, by values that outlive this part
        return value

    def memoize(self) -> None:
        self.put(self._puts)

    def made(self, value: Any) -> Any:
        return FOLDED if isinstance(value, Built) and value.name in self._fold.nothing else value

    def set_state(self, target: Any, state: Any) -> None:
        if target is FOLDED:
            return
        super().set_state(target, state)
        if isinstance(target, Built):
            self._fold.complete(target)

    def appended(self, items: list[Any]) -> None:
        if all(item is FOLDED for item in items):
            self._give_back(_REFERENCE * len(items))

    def takes(self, items: list[Any], *, are_marked: bool) -> bool:
        if not (items and isinstance(items[0], Built)):
            return False
        taken = [self._fold.take(key, value) for key, value in zip(items[::2], items[1::2], strict=True)]
        if not any(taken):
            return False
        if not all(taken):
            raise BadPickle("a dictionary with items of several kinds")
        if are_marked:
            self._give_back(_TAKEN * len(taken))
        return True

    def _is_short(self, value: Any) -> bool:
        return isinstance(value, Built) and value.name in self._fold.short

    def _give_back(self, needed: int) -> None:
        """Return the memory counted since the mark, except *needed* bytes and the kept texts."""
        room, texts, others = self._before
        if self._others == others:
            self.room = room - needed - (self._texts - texts)
