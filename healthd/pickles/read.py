"""
Reads pickles as data: it never builds an object and never calls a function from a pickle.

A pickle is a program. Only its data instructions run here. Instead of an object, a `Built` records the class name, the
arguments and the state. Only classes that the caller names are allowed. The standard unpickler with a restricted
`find_class` would be faster, but there a few bytes can request any amount of memory.
Source of the instructions: `pickletools` and PEP 307, 3154, 574. Protocols older than 2 are not supported.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container
from typing import Any, NoReturn

from healthd.pickles.folding import SKIMMED, Fold, Folding, skim
from healthd.pickles.machine import (
    EVERYTHING,
    MOST_INSTRUCTIONS,
    MOST_MEMORY,
    PERSISTENT_ID,
    BadPickle,
    Built,
    Garbled,
    Held,
    Named,
    PickleEnd,
    PickleMachine,
    PickleSource,
    Skipped,
)

__all__ = [
    "EVERYTHING",
    "PERSISTENT_ID",
    "BadPickle",
    "Built",
    "Fold",
    "Garbled",
    "Named",
    "PickleSource",
    "Skipped",
    "read_pickle",
]

HIGHEST_PROTOCOL = 5
LONGEST_TEXT = 4 << 20
LONGEST_NAME = 1000
"""The limit of characters of a class name with its module."""
LONGEST_NUMBER = 512
"""Bytes."""
MOST_ODD_KEYS = 10_000
"""
The limit of keys that are tuples, reals or beyond 64 bits. Their hash collisions can be chosen in advance, and many
collisions would take hours.
"""
_NOT_DATA = b"TU\x82\x83\x84\x96\x97\x98"
"""Instructions since protocol 2 that are not supported: Python 2 texts, extensions, out-of-band buffers."""
_SET, _DICT, _FIRST_PAIR, _PAIR, _LIST, _TUPLE, _BUILT, _TEXT, _NUMBER, _SLOT = 224, 72, 120, 20, 72, 56, 64, 56, 32, 8
"""Bytes of memory of each."""


def read_pickle(
    data: bytes | PickleSource,
    allowed: Container[str],
    *,
    most: int = MOST_INSTRUCTIONS,
    memory: int = MOST_MEMORY,
    fold: Fold | None = None,
) -> Any:
    """
    The value: plain Python data, with `Built` in place of objects and `Named` in place of classes.

    Args:
        allowed: full names such as `collections.OrderedDict` of the classes and functions that may appear.
        most: instructions after which to give up.
        memory: bytes of values after which to give up.
        fold: takes objects as they are completed, where there may be a million of them.

    Raises:
        BadPickle: says which name was not allowed, or what is wrong with the bytes.
    """
    source = Held(data) if isinstance(data, bytes) else data
    if fold is None:
        machine = PickleMachine(source, allowed, most, memory)
    else:
        asked = skim(data) if isinstance(data, bytes) and len(data) > SKIMMED else None
        machine = Folding(source, allowed, most, memory, fold, asked)
    try:
        return machine.run(_TABLE)
    except (IndexError, KeyError, TypeError, ValueError, struct.error, AttributeError) as error:
        raise Garbled(f"not a whole pickle (at byte {machine.at:,} of {len(data):,})") from error


def _fixed(value: Any) -> Callable[[PickleMachine], None]:
    return lambda m: m.stack.append(value)


def _blob(width: int) -> Callable[[PickleMachine], None]:
    def step(m: PickleMachine) -> None:
        piece = m.blob(m.number(width))
        m.room -= _TEXT + (len(piece) if isinstance(piece, bytes) else 0)
        m.stack.append(piece)

    return step


def _text(width: int) -> Callable[[PickleMachine], None]:
    def step(m: PickleMachine) -> None:
        size = m.number(width)
        if size > LONGEST_TEXT:
            raise BadPickle(f"a text of {size:,} bytes")
        text = m.take(size).decode("utf-8", "surrogatepass")
        m.room -= _TEXT + (size if text.isascii() else 4 * size)  # one wide character makes all others as wide
        m.stack.append(text)

    return step


def _integer(width: int) -> Callable[[PickleMachine], None]:
    return lambda m: m.stack.append(m.number(width))


def _long(width: int) -> Callable[[PickleMachine], None]:
    def step(m: PickleMachine) -> None:
        size = m.number(width)
        if size > LONGEST_NUMBER:
            raise BadPickle(f"a number of {size:,} bytes")
        m.room -= _NUMBER + size
        m.stack.append(int.from_bytes(m.take(size), "little", signed=True))

    return step


def _signed(m: PickleMachine) -> None:
    m.room -= _NUMBER
    m.stack.append(int.from_bytes(m.take(4), "little", signed=True))


def _float(m: PickleMachine) -> None:
    m.room -= _NUMBER
    m.stack.append(struct.unpack(">d", m.take(8))[0])


def _empty_list(m: PickleMachine) -> None:
    m.room -= _LIST
    m.stack.append([])


def _empty_dict(m: PickleMachine) -> None:
    m.room -= _DICT
    m.stack.append({})


def _empty_set(m: PickleMachine) -> None:
    m.room -= _SET
    m.stack.append(set())


def _tuple(size: int) -> Callable[[PickleMachine], None]:
    def step(m: PickleMachine) -> None:
        if len(m.stack) < size:
            raise ValueError
        m.room -= _TUPLE + _SLOT * size
        m.stack[len(m.stack) - size :] = [tuple(m.stack[len(m.stack) - size :])]

    return step


def _mark(m: PickleMachine) -> None:
    m.mark()


def _tuple_since_mark(m: PickleMachine) -> None:
    items = tuple(m.since_mark())
    m.room -= _TUPLE + _SLOT * len(items)
    m.stack.append(items)


def _list_since_mark(m: PickleMachine) -> None:
    items = m.since_mark()
    m.room -= _LIST + _SLOT * len(items)
    m.stack.append(items)


def _dict_since_mark(m: PickleMachine) -> None:
    items = m.since_mark()
    _empty_dict(m)
    _set_items(m, m.stack[-1], items)


def _frozenset_since_mark(m: PickleMachine) -> None:
    items = m.since_mark()
    m.room -= _SET + 2 * _PAIR * len(items)
    m.stack.append(frozenset(_key(m, item) for item in items))


def _appends(m: PickleMachine) -> None:
    items = m.since_mark()
    if not isinstance(m.stack[-1], Built):  # the items of a list subclass are not recorded
        m.room -= _SLOT * len(items)
        m.stack[-1].extend(items)
        m.appended(items)


def _append(m: PickleMachine) -> None:
    item = m.stack.pop()
    if not isinstance(m.stack[-1], Built):
        m.room -= 4 * _SLOT  # the first item makes space for four
        m.stack[-1].append(item)


def _additems(m: PickleMachine) -> None:
    items = m.since_mark()
    if not isinstance(m.stack[-1], set):
        raise BadPickle("adds an item to something that is no set")
    m.room -= 2 * _PAIR * len(items)
    m.stack[-1].update(_key(m, item) for item in items)


def _setitems(m: PickleMachine) -> None:
    items = m.since_mark()
    if not m.takes(items, are_marked=True):
        _set_items(m, m.stack[-1], items)


def _setitem(m: PickleMachine) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    if not m.takes([key, value], are_marked=False):
        _set_items(m, m.stack[-1], [key, value])


def _set_items(m: PickleMachine, target: Any, items: list[Any]) -> None:
    if isinstance(target, Built):  # the items of a dictionary subclass are not recorded
        return
    if not isinstance(target, dict):
        raise BadPickle("sets an item of something that is no dictionary")
    m.room -= _PAIR * len(items) // 2 + (0 if target else _FIRST_PAIR)
    for key, value in zip(items[::2], items[1::2], strict=True):
        target[key if isinstance(key, str) else _key(m, key)] = value


def _key(m: PickleMachine, key: Any) -> Any:
    """Keys must be flat: hashing a tuple that is nested a million levels deep would crash this process."""
    if isinstance(key, frozenset) or (
        isinstance(key, tuple) and any(isinstance(part, tuple | frozenset) for part in key)
    ):
        raise BadPickle("nested keys")
    if isinstance(key, tuple | float) or (isinstance(key, int) and key.bit_length() > 64):
        m.odd_keys += 1 + (len(key) if isinstance(key, tuple) else 0)
        if m.odd_keys > MOST_ODD_KEYS:
            raise BadPickle(f"more than {MOST_ODD_KEYS:,} keys that are no names and no plain numbers")
    return key


def _named(m: PickleMachine, module: object, name: object) -> Named:
    if not (isinstance(module, str) and isinstance(name, str)):
        raise BadPickle("names a class by something that is no text")
    if len(module) + len(name) > LONGEST_NAME:
        raise BadPickle(f"names a class by {len(module) + len(name):,} letters")
    if not (module + name).isprintable():
        raise Garbled("names a class by letters that no name has")
    m.room -= _BUILT + len(module) + len(name)
    full = f"{module}.{name}"
    if full not in m.allowed:
        raise BadPickle(f"asks for {full[:120]!r}, which is not let through")
    return Named(full)


def _build(m: PickleMachine, maker: Any, args: Any) -> Any:
    if not isinstance(maker, Named):
        raise BadPickle("calls something that is no class")
    m.room -= _BUILT
    if maker.name in {"collections.OrderedDict", "collections.defaultdict"}:
        return {}  # the following instructions fill it
    return Built(maker.name, args)


def _global(m: PickleMachine) -> None:
    module = m.line()
    m.stack.append(_named(m, module, m.line()))


def _stack_global(m: PickleMachine) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    m.stack.append(_named(m, module, name))


def _call(m: PickleMachine) -> None:
    args, maker = m.stack.pop(), m.stack.pop()
    m.stack.append(m.made(_build(m, maker, args)))


def _call_with_names(m: PickleMachine) -> None:
    named, args, maker = m.stack.pop(), m.stack.pop(), m.stack.pop()
    m.stack.append(m.made(_build(m, maker, (args, named))))


def _set_state(m: PickleMachine) -> None:
    state = m.stack.pop()
    m.set_state(m.stack[-1], state)


def _persistent_id(m: PickleMachine) -> None:
    if PERSISTENT_ID not in m.allowed:
        raise BadPickle("refers to data outside of it")
    m.room -= _BUILT
    m.stack.append(Built(PERSISTENT_ID, m.stack.pop()))


def _protocol(m: PickleMachine) -> None:
    if m.number(1) > HIGHEST_PROTOCOL:
        raise ValueError


def _frame(m: PickleMachine) -> None:
    """A hint for stream readers, which refuse a frame that ends beyond the data."""
    if m.number(8) > len(m.data) - m.at:
        raise ValueError


def _put(width: int) -> Callable[[PickleMachine], None]:
    return lambda m: m.put(m.number(width))


def _get(width: int) -> Callable[[PickleMachine], None]:
    return lambda m: m.stack.append(m.get(m.number(width)))


def _memoize(m: PickleMachine) -> None:
    m.memoize()


def _stop(_: PickleMachine) -> None:
    raise PickleEnd


def _pop_mark(m: PickleMachine) -> None:
    m.since_mark()


def _unknown(m: PickleMachine) -> NoReturn:
    code = m.data.byte(m.at - 1)
    kind = BadPickle if code in _NOT_DATA else Garbled
    raise kind(f"instruction {code:#x} is not plain data")


_INSTRUCTIONS: dict[bytes, Callable[[PickleMachine], Any]] = {
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
