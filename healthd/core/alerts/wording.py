"""What an incident says: the words of its one problem, or a list of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from healthd.core.alerts.advice import IN_CLUSTER, Advice
from healthd.core.alerts.problem import Problem, counted
from healthd.core.alerts.routing import team_of
from healthd.core.api import Node
from healthd.core.api.incidents import LONGEST_TEXT, LONGEST_TITLE, MOST_NODES, Incident, Severity
from healthd.core.config import AlertsPolicy
from healthd.core.phrases import some
from healthd.core.printable import printable

LISTED = 10
"""Gangs or nodes of one incident whose own words are in its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What is needed beside the problems."""

    policy: AlertsPolicy
    nodes: Mapping[str, Node]
    domain_label: str
    """The node label that names a failure domain."""
    now: datetime
    cluster: str = ""
    """The name of the cluster. Incidents keep the name under which they were opened."""

    advice: Advice = IN_CLUSTER

    def domain_of(self, members: Sequence[Problem]) -> str:
        """The failure domain that all nodes of *members* are in; empty when there is none."""
        named = {name for each in members for name in each.nodes if name in self.nodes}
        domains = {self.nodes[name].metadata.labels.get(self.domain_label, "") for name in named}
        return domains.pop() if len(domains) == 1 else ""


def worded(key: str, members: Sequence[Problem], first: Incident | None, context: Context) -> Incident:
    """
    The incident with the problems *members*, as revision 1. What never changes is taken from its *first* revision:
    when it was opened, the name of its cluster, and its labels, by which Alertmanager knows an alert.
    """
    top = max(members, key=lambda each: (each.severity is Severity.PAGE, each.rank))
    alone, ends = len(members) == 1, [each.resolved for each in members]
    namespaces, gangs = {each.namespace for each in members}, {(each.namespace, each.gang) for each in members}
    namespace = namespaces.pop() if len(namespaces) == 1 else ""
    return Incident(
        key=key,
        cluster=first.cluster if first is not None else context.cluster,
        severity=top.severity,
        title=_cut(top.title if alone else _title(members, context), LONGEST_TITLE, keep=""),
        opened=first.opened if first is not None else min(each.since for each in members),
        updated=context.now,
        resolved=None if None in ends else max(filter(None, ends)),
        namespace=namespace,
        gang=top.gang if len(gangs) == 1 else "",
        team=team_of(namespace, context.policy),
        nodes=tuple(sorted({name for each in members for name in each.nodes})[:MOST_NODES]),
        happened=_cut(_joined(members, [each.happened for each in members]), LONGEST_TEXT),
        did=_cut(_joined(members, [each.did for each in members]), LONGEST_TEXT),
        todo=_cut(top.todo if alone else _todo(members), LONGEST_TEXT),
        command=top.command if alone else _command(members, context.advice),
        runbook=top.runbook,
        labels=first.labels if first is not None else _labels(members, context),
    )


def _title(members: Sequence[Problem], context: Context) -> str:
    """`12 gangs on 40 nodes of rack-7: no spare, the breaker is open`."""
    gangs = len({(each.namespace, each.gang) for each in members if each.gang})
    nodes = len({name for each in members for name in each.nodes})
    terms = context.advice.terms
    about = " on ".join(counted(number, noun) for number, noun in ((gangs, terms.gang), (nodes, terms.node)) if number)
    domain = context.domain_of(members)
    reasons = list(dict.fromkeys(each.reason for each in _ranked(members)))
    return f"{about}{f' of {domain}' if domain else ''}: {some(reasons)}"


def _ranked(members: Sequence[Problem]) -> list[Problem]:
    """The most significant first."""
    return sorted(members, key=lambda each: -each.rank)


def _todo(members: Sequence[Problem]) -> str:
    """What ends each kind of problem. Once for each kind: the list can be long."""
    todos: dict[str, str] = {}
    for each in _ranked(members):
        if each.todo:
            todos.setdefault(each.reason, each.todo)
    return "\n".join(todos.values())


def _joined(members: Sequence[Problem], texts: Sequence[str]) -> str:
    """The text of each member on its own line, of the first ten; the same text only once."""
    if len(members) == 1:
        return texts[0]
    lines = list(dict.fromkeys(f"{each.subject}: {text}" for each, text in zip(members, texts, strict=True) if text))
    more = [f"And {len(lines) - LISTED} more."] if len(lines) > LISTED else []
    return "\n".join([*(line[: LONGEST_TEXT // LISTED - 1] for line in lines[:LISTED]), *more])


def _command(members: Sequence[Problem], advice: Advice) -> str:
    return advice.ask_gangs if any(each.gang for each in members) else advice.ask_nodes


def _labels(members: Sequence[Problem], context: Context) -> dict[str, str]:
    domain = context.domain_of(members)
    return {"cause": members[0].cause, **({"domain": domain} if domain else {})}


def _cut(text: str, most: int, keep: str = "\n") -> str:
    text = printable(text, keep=keep)
    return text if len(text) <= most else f"{text[: most - 1]}…"
