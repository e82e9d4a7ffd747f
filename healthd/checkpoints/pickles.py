"""
Pickles, read as data: no object of theirs is ever built and nothing of theirs ever called.

A pickle is a program. This runs only its data instructions; where it would build an object, a `Built` takes note of
the class's name and of what it was to be given, and only classes that the caller names are let through. The
standard unpickler with a narrowed `find_class` would be faster, but lets a few bytes ask for any amount of memory.
Source of the instructions: `pickletools` and PEP 307, 3154, 574. Older ones than protocol 2 are not known here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container
from typing import Any, NoReturn, Protocol

from msgspec import Struct

MOST_INSTRUCTIONS = 20_000_000
"""Bounds the time: about ten seconds."""
MOST_MEMORY = 400 << 20
"""Bytes that all values together may take, by a generous estimate."""
LONGEST_TEXT = 4 << 20
LONGEST_NAME = 1000
"""Letters of the name of a class with its module."""
LONGEST_NUMBER = 512
"""Bytes."""
MOST_ODD_KEYS = 10_000
"""Keys that are tuples, reals or beyond 64 bits: which of those fall together in a dictionary is known beforehand, and
so many of them would take hours."""
_MOST_MARKS = 10_000
_STRETCH = 4096
"""Instructions between two looks at the bounds."""
_SET, _DICT, _FIRST_PAIR, _PAIR, _LIST, _TUPLE, _BUILT, _TEXT, _NUMBER, _SLOT = 224, 72, 120, 20, 72, 56, 64, 56, 32, 8
"""Bytes that each takes."""


HIGHEST_PROTOCOL = 5
PERSISTENT_ID = "persistent id"
"""Let through like the name of a class: a reference to data beside the pickle, which torch makes for each tensor."""


class _Everything(Container[str]):
    def __contains__(self, name: object) -> bool:
        return True


EVERYTHING: Container[str] = _Everything()
"""Lets any name through, since none is ever looked up: for files of which a few fields are wanted and no more."""


class BadPickle(Exception):
    """The bytes are not a whole pickle, or ask for something that is not let through; says what."""


class Built(Struct, eq=False):
    """What a pickle would have built: the class's full name, its arguments and its state."""

    name: str
    args: Any
    state: Any = None


class Skipped:
    """Contents that were stepped over, in the place of bytes."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class Source(Protocol):
    """A pickle that is not all in memory."""

    def __len__(self) -> int: ...

    def byte(self, at: int) -> int:
        """One byte. Raises IndexError at the end."""

    def piece(self, begin: int, end: int) -> bytes | Skipped:
        """These bytes, which are there, or something in their place when they are many."""

    def line_end(self, begin: int) -> int:
        """Where the next line feed is. Raises ValueError."""


class _Held:
    """A pickle in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.byte = data.__getitem__

    def __len__(self) -> int:
        return len(self._data)

    def piece(self, begin: int, end: int) -> bytes:
        return self._data[begin:end]

    def line_end(self, begin: int) -> int:
        return self._data.index(b"\n", begin)


def read_pickle(
    data: bytes | Source, allowed: Container[str], *, most: int = MOST_INSTRUCTIONS, memory: int = MOST_MEMORY
) -> Any:
    """
    The value: plain Python data, with `Built` in place of objects and `Named` in place of classes.

    Args:
        allowed: full names such as `collections.OrderedDict` of the classes and functions that may appear.
        most: instructions after which to give up.
        memory: bytes of values after which to give up.

    Raises:
        BadPickle: says which name was not allowed, or what is wrong with the bytes.
    """
    machine = _Machine(_Held(data) if isinstance(data, bytes) else data, allowed, most, memory)
    try:
        return machine.run()
    except (IndexError, KeyError, TypeError, ValueError, struct.error, AttributeError) as error:
        raise BadPickle(f"not a whole pickle (at byte {machine.at:,} of {len(data):,})") from error


class Named(Struct, eq=False, gc=False):
    """A class or function that was let through, by name only."""

    name: str


class _Stop(Exception): ...


class _Machine:
    def __init__(self, data: Source, allowed: Container[str], most: int, memory: int) -> None:
        self.data = data
        self.size = len(data)
        self.allowed = allowed
        self.most = most
        self.room = memory
        """Bytes that are left. Goes down with all that is made, also when it is thrown away again."""
        self.odd_keys = 0
        self.at = 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        """The stacks under each open mark."""
        self.memo: list[Any] = []
        self.memo_beyond: dict[int, Any] = {}
        """What was put at other numbers than the next: writers count from 0, and a number must not size a list."""

    def run(self) -> Any:
        byte, table = self.data.byte, _TABLE
        try:
            for done in range(0, self.most, _STRETCH):
                for _ in range(min(_STRETCH, self.most - done)):
                    step = table[byte(self.at)]
                    self.at += 1
                    step(self)
                self.refuse_excess()
        except _Stop:
            return self.stack.pop()
        raise BadPickle(f"more than {self.most:,} instructions")

    def refuse_excess(self) -> None:
        """Raise BadPickle when a bound is passed."""
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
        if size == 1:  # most of them
            self.at += 1
            return self.data.byte(self.at - 1)
        return int.from_bytes(self.take(size), "little")

    def line(self) -> str:
        text = self.take(self.data.line_end(self.at) - self.at).decode()
        self.at += 1
        return text

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def put(self, number: int) -> None:
        """Remember the top of the stack."""
        if number == len(self.memo):
            self.memo.append(self.stack[-1])
        elif number < len(self.memo):
            self.memo[number] = self.stack[-1]
        else:
            self.memo_beyond[number] = self.stack[-1]

    def get(self, number: int) -> Any:
        return self.memo[number] if number < len(self.memo) else self.memo_beyond[number]

    def named(self, module: object, name: object) -> Named:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise BadPickle("names a class by something that is no text")
        if len(module) + len(name) > LONGEST_NAME:
            raise BadPickle(f"names a class by {len(module) + len(name):,} letters")
        self.room -= _BUILT + len(module) + len(name)
        full = f"{module}.{name}"
        if full not in self.allowed:
            raise BadPickle(f"asks for {full[:120]!r}, which is not let through")
        return Named(full)

    def build(self, maker: Any, args: Any) -> Any:
        if not isinstance(maker, Named):
            raise BadPickle("calls something that is no class")
        self.room -= _BUILT
        if maker.name in {"collections.OrderedDict", "collections.defaultdict"}:
            return {}  # filled by the instructions that follow
        return Built(maker.name, args)


def _fixed(value: Any) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(value)


def _blob(width: int) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        piece = m.blob(m.number(width))
        m.room -= _TEXT + (len(piece) if isinstance(piece, bytes) else 0)
        m.stack.append(piece)

    return step


def _text(width: int) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        size = m.number(width)
        if size > LONGEST_TEXT:
            raise BadPickle(f"a text of {size:,} bytes")
        text = m.take(size).decode("utf-8", "surrogatepass")
        m.room -= _TEXT + (size if text.isascii() else 4 * size)  # one wide letter makes all others as wide
        m.stack.append(text)

    return step


def _integer(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(m.number(width))


def _long(width: int) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        size = m.number(width)
        if size > LONGEST_NUMBER:
            raise BadPickle(f"a number of {size:,} bytes")
        m.room -= _NUMBER + size
        m.stack.append(int.from_bytes(m.take(size), "little", signed=True))

    return step


def _signed(m: _Machine) -> None:
    m.room -= _NUMBER
    m.stack.append(int.from_bytes(m.take(4), "little", signed=True))


def _float(m: _Machine) -> None:
    m.room -= _NUMBER
    m.stack.append(struct.unpack(">d", m.take(8))[0])


def _empty_list(m: _Machine) -> None:
    m.room -= _LIST
    m.stack.append([])


def _empty_dict(m: _Machine) -> None:
    m.room -= _DICT
    m.stack.append({})


def _empty_set(m: _Machine) -> None:
    m.room -= _SET
    m.stack.append(set())


def _tuple(size: int) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        if len(m.stack) < size:
            raise ValueError
        m.room -= _TUPLE + _SLOT * size
        m.stack[len(m.stack) - size :] = [tuple(m.stack[len(m.stack) - size :])]

    return step


def _mark(m: _Machine) -> None:
    m.below.append(m.stack)
    m.stack = []


def _tuple_since_mark(m: _Machine) -> None:
    items = tuple(m.since_mark())
    m.room -= _TUPLE + _SLOT * len(items)
    m.stack.append(items)


def _list_since_mark(m: _Machine) -> None:
    items = m.since_mark()
    m.room -= _LIST + _SLOT * len(items)
    m.stack.append(items)


def _dict_since_mark(m: _Machine) -> None:
    items = m.since_mark()
    _empty_dict(m)
    _set_items(m, m.stack[-1], items)


def _frozenset_since_mark(m: _Machine) -> None:
    items = m.since_mark()
    m.room -= _SET + 2 * _PAIR * len(items)
    m.stack.append(frozenset(_key(m, item) for item in items))


def _appends(m: _Machine) -> None:
    items = m.since_mark()
    if not isinstance(m.stack[-1], Built):  # what a list of another class holds is not noted
        m.room -= _SLOT * len(items)
        m.stack[-1].extend(items)


def _append(m: _Machine) -> None:
    item = m.stack.pop()
    if not isinstance(m.stack[-1], Built):
        m.room -= 4 * _SLOT  # the first makes room for four
        m.stack[-1].append(item)


def _additems(m: _Machine) -> None:
    items = m.since_mark()
    if not isinstance(m.stack[-1], set):
        raise BadPickle("adds an item to something that is no set")
    m.room -= 2 * _PAIR * len(items)
    m.stack[-1].update(_key(m, item) for item in items)


def _setitems(m: _Machine) -> None:
    items = m.since_mark()
    _set_items(m, m.stack[-1], items)


def _setitem(m: _Machine) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    _set_items(m, m.stack[-1], [key, value])


def _set_items(m: _Machine, target: Any, items: list[Any]) -> None:
    if isinstance(target, Built):  # a dictionary of another class: what it holds is not noted
        return
    if not isinstance(target, dict):
        raise BadPickle("sets an item of something that is no dictionary")
    m.room -= _PAIR * len(items) // 2 + (0 if target else _FIRST_PAIR)
    for key, value in zip(items[::2], items[1::2], strict=True):
        target[key if isinstance(key, str) else _key(m, key)] = value


def _key(m: _Machine, key: Any) -> Any:
    """Keys are flat: hashing a tuple that is nested a million deep would end this process."""
    if isinstance(key, frozenset) or (
        isinstance(key, tuple) and any(isinstance(part, tuple | frozenset) for part in key)
    ):
        raise BadPickle("nested keys")
    if isinstance(key, tuple | float) or (isinstance(key, int) and key.bit_length() > 64):
        m.odd_keys += 1 + (len(key) if isinstance(key, tuple) else 0)
        if m.odd_keys > MOST_ODD_KEYS:
            raise BadPickle(f"more than {MOST_ODD_KEYS:,} keys that are no names and no plain numbers")
    return key


def _global(m: _Machine) -> None:
    module = m.line()
    m.stack.append(m.named(module, m.line()))


def _stack_global(m: _Machine) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    m.stack.append(m.named(module, name))


def _call(m: _Machine) -> None:
    args, maker = m.stack.pop(), m.stack.pop()
    m.stack.append(m.build(maker, args))


def _call_with_names(m: _Machine) -> None:
    named, args, maker = m.stack.pop(), m.stack.pop(), m.stack.pop()
    m.stack.append(m.build(maker, (args, named)))


def _set_state(m: _Machine) -> None:
    state, target = m.stack.pop(), m.stack[-1]
    if isinstance(target, Built):
        target.state = state
    elif not isinstance(target, dict):  # an OrderedDict may have attributes, such as `_metadata` of a module's state
        raise BadPickle("gives state to something that is no object")


def _persistent_id(m: _Machine) -> None:
    if PERSISTENT_ID not in m.allowed:
        raise BadPickle("refers to data outside of it")
    m.room -= _BUILT
    m.stack.append(Built(PERSISTENT_ID, m.stack.pop()))


def _protocol(m: _Machine) -> None:
    if m.number(1) > HIGHEST_PROTOCOL:
        raise ValueError


def _frame(m: _Machine) -> None:
    """A hint to readers of streams, who refuse one that leads beyond the end."""
    if m.number(8) > len(m.data) - m.at:
        raise ValueError


def _put(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.put(m.number(width))


def _get(width: int) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(m.get(m.number(width)))


def _memoize(m: _Machine) -> None:
    m.put(len(m.memo) + len(m.memo_beyond))


def _stop(_: _Machine) -> None:
    raise _Stop


def _pop_mark(m: _Machine) -> None:
    m.since_mark()


def _unknown(m: _Machine) -> NoReturn:
    raise BadPickle(f"instruction {m.data.byte(m.at - 1):#x} is not plain data")


_INSTRUCTIONS: dict[bytes, Callable[[_Machine], Any]] = {
    b"\x80": _protocol,
    b"\x95": _frame,
    b".": _stop,
    b"(": _mark,
    b"0": lambda m: m.stack.pop(),
    b"1": _pop_mark,
    b"2": lambda m: m.stack.append(m.stack[-1]),
    b"N": _fixed(None),
    b"\x88": _fixed(True),
    b"\x89": _fixed(False),
    b"J": _signed,
    b"K": _integer(1),
    b"M": _integer(2),
    b"\x8a": _long(1),
    b"\x8b": _long(4),
    b"G": _float,
    b"X": _text(4),
    b"\x8c": _text(1),
    b"\x8d": _text(8),
    b"B": _blob(4),
    b"C": _blob(1),
    b"\x8e": _blob(8),
    b"]": _empty_list,
    b"a": _append,
    b"e": _appends,
    b"l": _list_since_mark,
    b")": _fixed(()),
    b"t": _tuple_since_mark,
    b"\x85": _tuple(1),
    b"\x86": _tuple(2),
    b"\x87": _tuple(3),
    b"}": _empty_dict,
    b"d": _dict_since_mark,
    b"s": _setitem,
    b"u": _setitems,
    b"\x8f": _empty_set,
    b"\x90": _additems,
    b"\x91": _frozenset_since_mark,
    b"c": _global,
    b"\x93": _stack_global,
    b"R": _call,
    b"b": _set_state,
    b"\x81": _call,
    b"\x92": _call_with_names,
    b"Q": _persistent_id,
    b"q": _put(1),
    b"r": _put(4),
    b"h": _get(1),
    b"j": _get(4),
    b"\x94": _memoize,
}
_TABLE = [_INSTRUCTIONS.get(bytes([code]), _unknown) for code in range(256)]
