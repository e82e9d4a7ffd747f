"""The name that was probably meant, for an error message."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The one of *names* that is most like *word*. None: none is like it."""
    from difflib import get_close_matches  # imported here: 0.15 MB of memory of each agent, and only an error needs it

    found = get_close_matches(word, [*names], n=1)
    return found[0] if found else None
