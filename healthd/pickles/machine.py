"""
The machine that reads pickles as data: a stack, a memo and limits. `pickles` defines what each instruction does.

Objects are never built. A `Built` records the class name, the arguments and the state.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Protocol

from msgspec import Struct

MOST_INSTRUCTIONS = 20_000_000
"""The limit of instructions: it limits the time to about ten seconds."""
MOST_MEMORY = 400 << 20
"""The limit of bytes for all values together, by a generous estimate."""
_MOST_MARKS = 10_000
_STRETCH = 4096
"""Instructions between two checks of the limits."""
PERSISTENT_ID = "persistent id"
"""Allowed like a class name: a reference to data beside the pickle, which torch makes for each tensor."""


class _Everything(Container[str]):
    def __contains__(self, name: object) -> bool:
        return True


EVERYTHING: Container[str] = _Everything()
"""Allows any name, since no name is ever resolved. For files of which only a few fields are needed."""


class BadPickle(Exception):
    """The bytes are not a complete pickle, or use a name that is not allowed. The message says what."""


class Garbled(BadPickle):
    """The bytes are not a complete pickle, independent of the limits."""


class Built(Struct, eq=False):
    """The object that a pickle would have built: the class's full name, its arguments and its state."""

    name: str
    args: Any
    state: Any = None


class Skipped:
    """The placeholder for bytes that were skipped."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class PickleSource(Protocol):
    """A pickle that is not completely in memory."""

    def __len__(self) -> int: ...

    def byte(self, at: int) -> int:
        """One byte. Raises IndexError at the end."""

    def piece(self, begin: int, end: int) -> bytes | Skipped:
        """These bytes, or a placeholder when they are many."""

    def line_end(self, begin: int) -> int:
        """The offset of the next line feed. Raises ValueError."""


class Held:
    """A pickle that is completely in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.byte = data.__getitem__

    def __len__(self) -> int:
        return len(self._data)

    def piece(self, begin: int, end: int) -> bytes:
        return self._data[begin:end]

    def line_end(self, begin: int) -> int:
        return self._data.index(b"\n", begin)


class Named(Struct, eq=False, gc=False):
    """A class or function that was allowed, by name only."""

    name: str


class PickleEnd(Exception):
    """The pickle has reached its STOP instruction."""


class PickleMachine:
    def __init__(self, data: PickleSource, allowed: Container[str], most: int, memory: int) -> None:
        self.data = data
        self.size = len(data)
        self.allowed = allowed
        self.most = most
        self.room = memory
        """Remaining bytes. Everything that is made reduces it, even when it is discarded again."""
        self.odd_keys = 0
        self.at = 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        """The stacks under each open mark."""
        self.memo: list[Any] = []
        self.memo_beyond: dict[int, Any] = {}
        """
        Values with other numbers than the next one. Writers count from 0, and a number must not set the size of a
        list.
        """

    def run(self, table: Sequence[Callable[[PickleMachine], Any]]) -> Any:
        """
        The value, made by the instructions in *table*. Raises BadPickle, and the errors that garbled bytes cause.
        """
        byte = self.data.byte
        try:
            for done in range(0, self.most, _STRETCH):
                for _ in range(min(_STRETCH, self.most - done)):
                    step = table[byte(self.at)]
                    self.at += 1
                    step(self)
                self.refuse_excess()
        except PickleEnd:
            return self.stack.pop()
        raise BadPickle(f"more than {self.most:,} instructions")

    def refuse_excess(self) -> None:
        """Raise BadPickle when a limit is exceeded."""
        if self.room < 0:
            raise BadPickle("its values take more memory than it may have")
        if len(self.below) > _MOST_MARKS:
            raise BadPickle("values nested too deep")

    def blob(self, size: int) -> bytes | Skipped:
        begin = self.at
        end = self.at = begin + size
        if size < 0 or end > self.size:
            raise ValueError
        return self.data.piece(begin, end)

    def take(self, size: int) -> bytes:
        piece = self.blob(size)
        if not isinstance(piece, bytes):
            raise BadPickle(f"a text or a number of {size:,} bytes")
        return piece

    def number(self, size: int) -> int:
        if size == 1:  # most numbers
            self.at += 1
            return self.data.byte(self.at - 1)
        return int.from_bytes(self.take(size), "little")

    def line(self) -> str:
        text = self.take(self.data.line_end(self.at) - self.at).decode()
        self.at += 1
        return text

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def put(self, number: int) -> None:
        """Store the top of the stack in the memo."""
        if number == len(self.memo):
            self.memo.append(self.stack[-1])
        elif number < len(self.memo):
            self.memo[number] = self.stack[-1]
        else:
            self.memo_beyond[number] = self.stack[-1]

    def memoize(self) -> None:
        self.put(len(self.memo) + len(self.memo_beyond))

    def get(self, number: int) -> Any:
        return self.memo[number] if number < len(self.memo) else self.memo_beyond[number]

    def made(self, value: Any) -> Any:
        """The value to push for an object that was just made."""
        return value

    def set_state(self, target: Any, state: Any) -> None:
        if isinstance(target, Built):
            target.state = state
        elif not isinstance(target, dict):  # an OrderedDict may have attributes: `_metadata` of a module's state
            raise BadPickle("gives state to something that is no object")

    def appended(self, items: list[Any]) -> None:
        """Called when a list got these items: everything made since the mark."""

    def takes(self, items: list[Any], *, are_marked: bool) -> bool:  # noqa: ARG002 - for `Folding`
        """Whether a reader takes keys and values. With *are_marked* they are everything made since the mark."""
        return False
