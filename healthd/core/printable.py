"""Makes text from users, nodes or files safe to print on a terminal, in a log line or in an object."""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    """
    *text* with every non-printable character escaped: control characters, terminal escapes, direction overrides.

    Characters in *keep*, such as line ends, are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    """The JSON escape of *character*, so that JSON output stays valid JSON."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
