"""
One problem that the cluster's objects show. Problems with one cause become one incident (`core.alerts.incidents`).

Everything in it follows from stored objects, its key and its time too. So a controller that was restarted, or that has
just become the leader, finds the same problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from healthd.core.api.incidents import Severity
from healthd.core.printable import printable

_FROM_OUTSIDE = ("reason", "subject", "title", "namespace", "gang", "happened", "did", "todo", "command")
"""The fields that repeat what others wrote."""
_WORD = re.compile(r"(?!healthd )[a-z]+ ")


class Shared(StrEnum):
    """What several problems may have in common. Those that begin at about the same time are one incident then."""

    NONE = ""
    """Nothing: it is an incident of its own."""
    NODES = "nodes"
    """Gangs wait for nodes, or for proof about nodes: broken nodes still in service, no spare, an open breaker."""
    NODE = "node"
    """Nodes that are out of service."""
    RESTARTS = "restarts"
    """Too many restarts in one namespace: the breaker holds its gangs."""
    AGENTS = "agents"
    """Nodes without a live agent."""
    BLIND = "blind"
    """Nodes whose probes are blind."""


ENDLESS = frozenset({Shared.AGENTS, Shared.BLIND})
"""These are one incident for as long as it is open, however late a node joins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem, in words for the person on call."""

    key: str
    """The key of the incident that it opens."""
    since: datetime
    """When it began: of a gang, the fault. What a storm holds up one after another began with it all the same."""
    severity: Severity
    cause: str
    """For routing: `hardware`, `software`, `hang`, `straggler`, `interrupted`, `node`, `nodes`, `agents`, `blind`."""
    shared: Shared = Shared.NONE
    scope: str = ""
    """Only problems of the same scope share an incident: a namespace, or empty."""
    reason: str
    """What is wrong, in a few words: `no spare`."""
    subject: str
    """What it is about: `job/llama in team-a`, or a node."""
    title: str
    namespace: str = ""
    gang: str = ""
    nodes: tuple[str, ...] = ()
    happened: str = ""
    did: str = ""
    todo: str = ""
    command: str = ""
    runbook: str = ""
    rank: int = 0
    """Of the problems of one incident, the one with the highest rank names the runbook."""
    resolved: datetime | None = None
    """When it ended; its incident is closed with this text."""

    def __post_init__(self) -> None:
        """
        Each text is one line without control characters.

        Names and messages come from tenants, kernels and kubelets: a line of theirs must not pass for one of healthd's.
        """
        for name in _FROM_OUTSIDE:
            text = getattr(self, name)
            if not text.isprintable():
                object.__setattr__(self, name, printable(text))
        if not all(map(str.isprintable, self.nodes)):
            object.__setattr__(self, "nodes", tuple(map(printable, self.nodes)))


def stamp(moment: datetime) -> str:
    """A time as a part of a key: `20260101T031204Z`. At the end of the calendar its own zone counts as UTC."""
    with suppress(OverflowError):
        moment = moment.astimezone(UTC)
    return f"{moment:%Y%m%dT%H%M%SZ}"


def as_text(sentences: Iterable[str]) -> str:
    """Sentences as one text. Each ends with a full stop; one that begins with a word begins with a capital letter."""
    return " ".join(f"{_begun(one)}{'' if one[-1:] in '.!?' else '.'}" for one in sentences if one)


def _begun(sentence: str) -> str:
    """Names of nodes and commands stay as they are."""
    return sentence[:1].upper() + sentence[1:] if _WORD.match(sentence) else sentence


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
