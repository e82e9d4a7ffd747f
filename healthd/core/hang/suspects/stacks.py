"""The stack of the thread that runs the program of a rank, mostly the main one, from `py-spy dump --json`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from healthd.core.hang.suspects.evidence import MOST_FRAMES, Frame, Stack, bounded
from healthd.core.hang.suspects.outliers import wait_of
from healthd.core.untrusted import LARGEST_NUMBER

_LIBRARY = re.compile(r".*/(?:(?:site|dist)-packages/|lib(?:64)?/(?=python3\.\d+t?/))")
"""The folder of installed packages, or that around the standard library."""
_GENERATED = re.compile(r"<|.*/torchinductor_[^/]*/")
"""Code without a file (`<frozen runpy>`), and what torch.compile writes: it calls collectives itself."""
_KEPT_PARTS = 2
"""Of the path of a file that is in no library."""
_ENDS_OF_THREADS = {
    ("threading.py", "join"),
    ("threading.py", "_shutdown"),
    ("concurrent/futures/_base.py", "result"),
    ("concurrent/futures/_base.py", "wait"),
}
"""File and function of the standard library in which a thread waits for the work of another one of its process."""
_RUNS_TASKS = ("ray/_private/worker.py", "main_loop")
"""File and function in which the main thread of a worker of Ray is, while a thread of Ray Train runs the program."""


NO_FUNCTION = Stack((Frame("no Python function"),))
"""Of a main thread that has none, as while its process ends."""


class _SpiedFrame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: int = 0


class _SpiedThread(msgspec.Struct):
    os_thread_id: int | None = None
    thread_name: str | None = None
    owns_gil: bool | None = None
    frames: list[_SpiedFrame] = []


class NoStack(Exception):
    """The output is not that of py-spy, or has no main thread. The message says why."""


class NoFunction(NoStack):
    """The main thread is in no Python function. A look while it calls one or returns may show that, too."""


class StackLook(NamedTuple):
    """What one look at a process shows."""

    stack: Stack
    is_native: bool
    """None of its threads holds the lock of the interpreter (GIL): if it uses a processor, then in compiled code."""


def read_py_spy(output: bytes, pid: int) -> Stack:
    """The stack that `read_look` sees. Raises NoStack, NoFunction."""
    return read_look(output, pid).stack


def read_look(output: bytes, pid: int) -> StackLook:
    """
    The stack of the main thread of process *pid*. While that waits for a thread to end that waits for other ranks,
    as when it joins one that saves, the stack of this one. Of a program that runs in another thread, as in a worker of
    Ray, the stack of that one.

    Raises NoStack, NoFunction.
    """
    try:
        threads = msgspec.json.decode(output, type=list[_SpiedThread])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise NoStack(f"py-spy printed no list of threads: {bounded(str(error), 120)}") from error
    main = next((thread for thread in threads if thread.os_thread_id == pid), None)
    main = main or next((thread for thread in threads if thread.thread_name == "MainThread"), None)
    if main is None:
        raise NoStack("py-spy saw no main thread")
    if not main.frames:
        raise NoFunction("py-spy saw no Python function in the main thread")
    is_native = all(thread.owns_gil is False for thread in threads)
    return StackLook(_stack_of_program(main, threads), is_native)


def _stack_of_program(main: _SpiedThread, threads: Sequence[_SpiedThread]) -> Stack:
    stack = _stack(main)
    if wait_of(stack) is not None:
        return stack
    others = [_stack(thread) for thread in threads if thread is not main]
    waiting = next((other for other in others if wait_of(other) is not None), None)
    if waiting is not None and _waits_for_a_thread(stack):
        return waiting
    runs = _that_runs_task(stack, others) or stack
    return replace(runs, thread_waits=waiting is not None and wait_of(runs) is None)


def _that_runs_task(main: Stack, others: Sequence[Stack]) -> Stack | None:
    """The one with the program's own code: of several, as where it loads data in a further one, one that waits."""
    if not any((frame.file, _name(frame)) == _RUNS_TASKS for frame in main.frames):
        return None
    own = [stack for stack in others if any(frame.is_own for frame in stack.frames)]
    return next((stack for stack in own if wait_of(stack) is not None), next(iter(own), None))


def _stack(thread: _SpiedThread) -> Stack:
    return Stack(tuple(_frame(each) for each in thread.frames[:MOST_FRAMES]))


def _waits_for_a_thread(stack: Stack) -> bool:
    inside = takewhile(lambda frame: not frame.is_own, stack.frames)
    return any(_in_library(frame) in _ENDS_OF_THREADS for frame in inside)


def _in_library(frame: Frame) -> tuple[str, str]:
    """The file of *frame* below the folder of the standard library, and its function."""
    return frame.file.partition("/")[2], _name(frame)


def _name(frame: Frame) -> str:
    """Its function without its class."""
    return frame.function.rpartition(".")[2]


def _frame(spied: _SpiedFrame) -> Frame:
    path, line = spied.filename[-4096:], min(max(spied.line, 0), LARGEST_NUMBER)
    return Frame(bounded(spied.name[:1000]), _short(path), line, is_own=_is_own(path))


def _short(path: str) -> str:
    """The end of *path*: from the package on, or from `python3.11/` on; else the file and its folder."""
    library = _LIBRARY.match(path)
    short = path[library.end() :] if library else "/".join(path.split("/")[-_KEPT_PARTS:])
    return bounded(short[-64:])


def _is_own(path: str) -> bool:
    return bool(path) and not _LIBRARY.match(path) and not _GENERATED.match(path)
