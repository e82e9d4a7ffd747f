"""Keep out of a process what its libraries would load and nothing in it needs: the agent runs on every node."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without(module: str) -> Iterator[None]:
    """Within the block *module* seems not to be installed, unless it is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # the import system's own way to say so
    try:
        yield
    finally:
        del sys.modules[module]


@contextmanager
def empty(module: str, *names: str) -> Iterator[None]:
    """Within the block *module* has nothing but *names*, each an empty class, unless it is loaded already."""
    if module in sys.modules:
        yield
        return
    stand_in = ModuleType(module)
    for name in names:
        setattr(stand_in, name, type(name, (), {}))
    sys.modules[module] = stand_in
    try:
        yield
    finally:
        del sys.modules[module]


def trust_no_public_authorities() -> None:
    """aiohttp reads the public authorities at import, 2.5 MB; a pod asks its own cluster alone, whose one it has."""
    os.environ["SSL_CERT_FILE"] = os.devnull


def use_plain_lists() -> None:
    """The compiled twin of a list class of aiohttp, which loads the library of C++ for it: 1 MB."""
    os.environ["FROZENLIST_NO_EXTENSIONS"] = "1"
