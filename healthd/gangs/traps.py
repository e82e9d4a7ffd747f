"""The traps of a described kind that an object has, in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from healthd.core.config.gang_kinds import KindDescription
from healthd.core.phrases import some
from healthd.core.report.doctor import FoundTrap
from healthd.core.untrusted import InvalidText, shown
from healthd.gangs.paths import ANY, Json, Path, parse_sign

_WORD = re.compile(r"[\w./-]{1,60}", re.ASCII)


def found_traps(kind: KindDescription, whole: Json) -> Iterator[FoundTrap]:
    """Those that the object *whole* has. What cannot be read shows no trap: it makes the root invalid."""
    for trap in kind.traps:
        sign = parse_sign(trap.when)
        if not sign.values:
            if sign.holds(whole):
                yield FoundTrap(trap, f"its condition {sign.path[0]} is True")
            continue
        try:
            evidence = sign.evidence(whole)
        except InvalidText:
            continue
        if evidence:
            yield FoundTrap(trap, _what(sign.path, evidence))


def _what(path: Path, evidence: list[tuple[str, Any]]) -> str:
    value = _value(evidence[0][1])
    names = [_plain(name) for name, _ in evidence if name and not name.isdecimal()]  # a position says nothing
    if not names:
        return f"{'.'.join(word for word in path if word != ANY)} {value}"
    below = ".".join(word for word in path[path.index(ANY) + 1 :] if word != ANY)
    return f"{below} of {some(names)} {value}" if below else f"{'.'.join(path[:-1])} is set"


def _plain(text: str) -> str:
    return text if _WORD.fullmatch(text) else shown(text)


def _value(value: Any) -> str:
    if value in (None, ""):
        return "is not set"
    if isinstance(value, Mapping | list):
        return "is set"
    return f"is {str(value).lower() if isinstance(value, bool) else _plain(str(value))}"
