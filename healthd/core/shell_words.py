"""Names as words of a command that a person copies into a shell."""

from __future__ import annotations

import re

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,511}", re.ASCII)


def shell_word(name: str, placeholder: str) -> str:
    """
    *name*, when every shell takes it for one plain word and no program for an option.

    Else *placeholder*, such as `NODE`: no object is called so, and a text that somebody made up runs nowhere.
    """
    return name if _WORD.fullmatch(name) else placeholder
