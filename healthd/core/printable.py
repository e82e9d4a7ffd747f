"""Text that users, nodes or files wrote, made safe for a line on a terminal, in a log or in an object."""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    """
    *text* with every character escaped that does not print: controls, escapes of terminals, overrides of direction.

    The ones in *keep* stay, such as the ends of lines.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    """As JSON escapes it, so that what is printed for programs stays JSON."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
