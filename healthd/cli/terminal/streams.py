"""Standard input, output and error as every command finds them, whatever the caller made of them."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper

FAIL_WITH = {errno.EBADF, errno.EIO, errno.ENOSPC, errno.EDQUOT}
"""The errors of a stream that is closed, hung up, or on a full disk."""
_STAND_INS = {"stdin": (os.O_WRONLY, "r"), "stdout": (os.O_RDONLY, "w"), "stderr": (os.O_WRONLY, "w")}
"""
Reading the first or writing the second fails, as with a closed stream in other programs. Errors are lost silently.
"""


def prepare() -> None:
    """
    Give each stream that the caller closed a stand-in, and print what the terminal has no letter for as an escape.

    Without a stand-in the next file that is opened has the number of the stream, and what is printed may end in it.
    """
    for name, (flags, mode) in _STAND_INS.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flags), mode))  # noqa: SIM115 - open until the process ends
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the setting of standard error


def forget_stdout() -> None:
    """Keep the interpreter from complaining at exit about output without a reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def best_effort() -> Iterator[None]:
    """For a command whose work is not its output: what standard output did not take in the block fails nothing."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            forget_stdout()
