"""Where in its program a rank is, by its stack. Pure."""

from __future__ import annotations

import re

from healthd.core.hang.suspects.evidence import Frame, Stack

_STANDARD_LIBRARY = re.compile(r"python3\.\d+t?/")
_OF_NO_PACKAGE = re.compile(rf"$|<|{_STANDARD_LIBRARY.pattern}")
_KEPT_PARTS = 2


def place_of(stack: Stack) -> tuple[Frame, ...]:
    """The innermost frame, and the innermost one of the program's own code if that is another one."""
    innermost = stack.frames[:1]
    own = next((frame for frame in stack.frames if frame.is_own), None)
    return innermost if own is None or own in innermost else (*innermost, own)


def spoken_place(stack: Stack) -> str:
    """`SocketIO.readinto (python3.11/socket.py:706), called by fetch (train.py:88)`. Empty: the stack is."""
    return ", called by ".join(map(_spoken, place_of(stack)))


def _spoken(frame: Frame) -> str:
    return f"{frame.function} ({frame.file}:{frame.line})" if frame.file else frame.function


def function_of(frame: Frame) -> tuple[str, str]:
    """
    Equal for frames of the same function, whatever their lines.

    An older healthd kept the last two parts of the path of a file of the standard library. What it stored or sent is
    compared with newer stacks, so no more of it counts.
    """
    file = frame.file
    if _STANDARD_LIBRARY.match(file):
        file = "/".join(file.split("/")[-_KEPT_PARTS:])
    return frame.function, file


def package_function(stack: Stack) -> tuple[str, str] | None:
    """
    The innermost function. None: it is of the program's own code, or of the standard library, a part of which is in no
    file (`<frozen genericpath>`).
    """
    frame = next(iter(stack.frames), None)
    if frame is None or frame.is_own or _OF_NO_PACKAGE.match(frame.file):
        return None
    return function_of(frame)
