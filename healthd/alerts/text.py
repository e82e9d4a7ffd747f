"""
An incident in words, for people in a chat or on a pager, and how a text is cut to the limits of a service.

The text answers, in this order: what, since when, which gang and team, what happened, what healthd did, what is left
for a person, and the command that says why. The long parts are shortened first, so the last lines are never lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from healthd.core.api.incidents import Incident, Severity
from healthd.core.printable import printable

MOST_NODES = 20
"""Nodes that a text names. The others are counted."""
TITLE = 200
"""Characters of a headline. Longer titles are no titles."""
WHEN, WHERE = 0.06, 0.12
"""Shares of a text for its first two lines."""
RUNBOOK = "Runbook"
SHARES = {
    "What happened": 0.35,
    "What healthd did": 0.15,
    "What is left to do": 0.2,
    "Ask why": 0.08,
    RUNBOOK: 0.04,
}
"""Shares of a text for its other parts. With the first two they are one, so no part pushes out another."""
HEADINGS = 100
"""Room for all headings."""


_MENTION = re.compile(r"(?<!\w)@(?=\w)")


class Section(NamedTuple):
    """One part of a text. *heading* is empty for a line that needs none."""

    heading: str
    text: str


def plain(text: str) -> str:
    """*text* without control characters and direction overrides; lines stay."""
    return printable(text.strip(), keep="\n")


def one_line(text: str) -> str:
    """*text* on one line."""
    return printable(" ".join(text.split()))


def unlinked(text: str) -> str:
    """
    *text* in which no chat, pager or mail finds a tag, a mention, or a link behind other words.

    Names and messages in it were written by tenants. Services understand `<…>` (HTML, Slack), `[words](address)`
    (Markdown) and `@name`. An address stays readable as what it is.
    """
    return _MENTION.sub("＠", text.replace("<", "‹").replace("](", "] ("))


def fit(text: str, fits: Callable[[str], bool]) -> str:
    """*text*, or its longest beginning with `…` for which *fits* is true. Cut between characters, never within one."""
    if fits(text):
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[:middle] + "…") else (low, middle - 1)
    return text[:low].rstrip() + "…" if low else ""


def cut(text: str, most: int) -> str:
    """*text* of at most *most* characters."""
    return fit(text, lambda shorter: len(shorter) <= most)


def cut_bytes(text: str, most: int) -> str:
    """*text* of at most *most* bytes of UTF-8."""
    return fit(text, lambda shorter: len(shorter.encode()) <= most)


def headline(incident: Incident) -> str:
    """The state and the title, on one line."""
    return f"{_state(incident)} {cut(one_line(incident.title), TITLE)}"


def sections(incident: Incident, most: int, cut: Callable[[str, int], str] = cut) -> list[Section]:
    """All parts of the text that are not empty. *most* is a size as *cut* counts it, for all parts without headings."""
    texts = (incident.happened, incident.did, incident.todo, incident.command, incident.runbook)
    long = zip(SHARES, texts, SHARES.values(), strict=True)
    shown = [
        Section("", cut(_when(incident), int(most * WHEN))),
        Section("", _where(incident, int(most * WHERE), cut)),
        *(Section(heading, cut(plain(text), int(most * share))) for heading, text, share in long),
    ]
    return [section for section in shown if section.text]


def body(incident: Incident, most: int, cut: Callable[[str, int], str] = cut) -> str:
    """The text below the headline, without any markup, at most *most* as *cut* counts it."""
    parts = sections(incident, most - HEADINGS, cut)
    lines = [f"{heading}: {text}" if heading else text for heading, text in parts]
    return cut("\n".join(lines), most)


def digest_headline(incidents: Sequence[Incident]) -> str:
    """How many incidents of which state, on one line."""
    states = [_state(incident) for incident in incidents]
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states))]
    clusters = {incident.cluster for incident in incidents if incident.cluster}
    where = f" in {one_line(clusters.pop())}" if len(clusters) == 1 else ""
    return f"healthd{where}: {len(incidents)} incidents ({', '.join(counts)})"


def digest(incidents: Sequence[Incident], most: int, cut: Callable[[str, int], str] = cut) -> str:
    """One line for each incident, pages first. What does not fit is counted."""
    lines = [headline(incident) for incident in sorted(incidents, key=_urgency)]
    shown = lines
    while len(shown) > 1 and cut(text := _with_count(shown, len(lines)), most) != text:
        shown = shown[: -max(1, len(shown) // 10)]
    return cut(_with_count(shown, len(lines)), most)


def _with_count(shown: Sequence[str], all_lines: int) -> str:
    more = all_lines - len(shown)
    return "\n".join([*shown, f"… and {more} more"] if more else shown)


def nodes(incident: Incident, most: int = MOST_NODES) -> str:
    """The nodes of *incident*, at most *most* of them by name."""
    names = [one_line(name) for name in incident.nodes]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _state(incident: Incident) -> str:
    if incident.resolved is not None:
        return "[RESOLVED]"
    return "[PAGE]" if incident.severity is Severity.PAGE else "[NOTICE]"


def _urgency(incident: Incident) -> tuple[bool, bool]:
    return incident.resolved is not None, incident.severity is not Severity.PAGE


def _when(incident: Incident) -> str:
    since = f"Since {incident.opened:%Y-%m-%d %H:%M:%S} UTC"
    return since if incident.resolved is None else f"{since}, resolved {incident.resolved:%Y-%m-%d %H:%M:%S} UTC"


def _where(incident: Incident, most: int, cut: Callable[[str, int], str]) -> str:
    """Cluster, gang, team and nodes on one line, with fewer nodes where there is less room."""
    texts = [_place(incident, count) for count in (MOST_NODES, 10, 5, 2, 1)]
    return next((text for text in texts if cut(text, most) == text), cut(texts[-1], most))


def _place(incident: Incident, count: int) -> str:
    named = (
        ("Cluster", incident.cluster),
        ("Gang", incident.gang),
        ("Namespace", incident.namespace),
        ("Team", incident.team),
        ("Nodes", nodes(incident, count)),
    )
    return " · ".join(f"{what} {one_line(name)}" for what, name in named if name)
