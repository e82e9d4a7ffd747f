"""
Which problems are one incident.

Problems that share a cause and begin within `alerts.window` are one incident, whatever their failure domain: a storm
goes over domains, and the label of a domain is often that of a whole zone. The first of them gives the key. Which
incident a later one joins follows from the stored incidents and from times that are stored in the cluster, so a new
leader decides the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from healthd.core.alerts.problem import ENDLESS, Problem, Shared, as_text
from healthd.core.api.incidents import Incident, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """An incident with what decides which later problems join it."""

    incident: Incident
    shared: Shared = Shared.NONE
    scope: str = ""
    began: datetime | None = None
    """When the first of the problems that share it began."""

    @property
    def is_open(self) -> bool:
        """Whether it has not been resolved."""
        return self.incident.resolved is None


@dataclass(frozen=True, slots=True)
class Group:
    """An incident that problems of one kind and scope may join, and when the first of them began."""

    key: str
    shared: Shared
    scope: str
    began: datetime

    def takes(self, problem: Problem, window: timedelta) -> bool:
        """Whether *problem* is a part of it."""
        if (problem.shared, problem.scope) != (self.shared, self.scope):
            return False
        return problem.shared in ENDLESS or abs(problem.since - self.began) <= window


Members = dict[str, list[Problem]]
"""The problems of each incident, by its key."""


def grouped(
    problems: Iterable[Problem], known: Mapping[str, Tracked], window: timedelta
) -> tuple[dict[str, Group], Members]:
    """The incidents that several problems share, by key, and the problems of all incidents."""
    groups = sorted(filter(None, map(_group_of, known.values())), key=lambda group: (group.began, group.key))
    members: Members = defaultdict(list)
    joined: list[tuple[Problem, str]] = []
    for problem in sorted(problems, key=lambda each: (each.since, each.key)):
        key = problem.key if problem.shared is Shared.NONE else _joined(problem, groups, window).key
        members[key].append(problem)
        if key != problem.key:
            joined.append((problem, key))
    for problem, key in joined:
        if _keeps_its_own(problem, members[key], known):
            members[problem.key].append(_pointing(problem, key))
    return {group.key: group for group in groups if group.key in members}, members


def _group_of(tracked: Tracked) -> Group | None:
    if not tracked.is_open or tracked.shared is Shared.NONE or tracked.began is None:
        return None
    return Group(tracked.incident.key, tracked.shared, tracked.scope, tracked.began)


def _joined(problem: Problem, groups: list[Group], window: timedelta) -> Group:
    """The group that takes *problem*; a new one is added to *groups*."""
    for group in groups:
        if group.takes(problem, window):
            return group
    groups.append(Group(problem.key, problem.shared, problem.scope, problem.since))
    return groups[-1]


def _keeps_its_own(problem: Problem, group: Sequence[Problem], known: Mapping[str, Tracked]) -> bool:
    """
    Whether a gang that is part of a larger incident keeps one of its own, as a notice: it has one already, or the
    larger one is about gangs of several namespaces, and its own people do not get that.
    """
    own = known.get(problem.key)
    if own is not None and own.is_open:
        return True
    return bool(problem.namespace) and len({each.namespace for each in group}) > 1


def _pointing(problem: Problem, key: str) -> Problem:
    return replace(
        problem,
        severity=Severity.NOTICE,
        shared=Shared.NONE,
        scope="",
        todo=as_text([f"nothing for this gang alone: it is a part of incident {key}"]),
        rank=0,
    )
