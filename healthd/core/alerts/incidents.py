"""Problems become incidents: which are new, which have changed enough for a new revision, and which are over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from healthd.core.alerts.grouping import Group, Tracked, grouped
from healthd.core.alerts.problem import Problem
from healthd.core.alerts.wording import Context, worded
from healthd.core.api.incidents import Incident, Severity
from healthd.core.config import AlertsPolicy

SETTLE = timedelta(seconds=5)
"""Between two revisions of one incident, while neither its severity nor its end changes: a storm grows node by node."""


def incidents_now(problems: Iterable[Problem], known: Mapping[str, Tracked], context: Context) -> list[Tracked]:
    """
    The incidents that are new, changed or over, as they are to be stored. *known* are the stored ones by key: all that
    are open, and those that ended lately.
    """
    groups, members = grouped(problems, known, context.policy.window)
    changed: list[Tracked] = []
    for key, parts in members.items():
        before = known.get(key)
        if before is None and not _may_open(parts, context.policy, context.now):
            continue
        tracked = _tracked(key, parts, groups.get(key), before, context)
        if tracked != before:
            changed.append(tracked)
    over = (each for key, each in known.items() if each.is_open and key not in members)
    return [*changed, *(_ended(each, context.now) for each in over)]


def _may_open(members: Sequence[Problem], policy: AlertsPolicy, now: datetime) -> bool:
    """Pages are opened at once. Notices wait until it is known which problems belong together."""
    if all(each.resolved is not None for each in members):
        return True
    return any(each.severity is Severity.PAGE or now - each.since >= policy.notice_after for each in members)


def _tracked(
    key: str, members: Sequence[Problem], group: Group | None, before: Tracked | None, context: Context
) -> Tracked:
    """The incident with *members* as it is now. It is equal to *before* while nothing changed that is worth a write."""
    first = before.incident if before is not None else None
    incident = worded(key, members, first, context)
    if first is not None:
        incident = _next_revision(first, incident)
    if group is None:
        return Tracked(incident=incident)
    return Tracked(incident=incident, shared=group.shared, scope=group.scope, began=group.began)


def _next_revision(before: Incident, after: Incident) -> Incident:
    """*after* as the next revision of *before*. *before* itself when no reader sees a change, or that can wait."""
    if before.resolved is not None and after.resolved is not None:
        return before
    same = msgspec.structs.replace(after, revision=before.revision, updated=before.updated)
    is_urgent = (before.severity, before.resolved is None) != (after.severity, after.resolved is None)
    if same == before or (not is_urgent and after.updated - before.updated < SETTLE):
        return before
    return msgspec.structs.replace(after, revision=before.revision + 1)


def _ended(tracked: Tracked, now: datetime) -> Tracked:
    """Its problems are gone. The text stays, as their objects may be gone, too."""
    before = tracked.incident
    ended = msgspec.structs.replace(before, revision=before.revision + 1, updated=now, resolved=now, todo="")
    return replace(tracked, incident=ended)
