"""The problems of gangs of which one rank makes the others wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from healthd.core.alerts.advice import Advice
from healthd.core.alerts.problem import Problem, as_text, stamp
from healthd.core.api.incidents import Severity, key_of
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.straggler_text import effect_of, sentence_of
from healthd.core.recovery.gang import Root
from healthd.core.recovery.recovery_status import gang_text
from healthd.core.shell_words import shell_word


def straggler_problems(
    roots: Iterable[Root], present: Callable[[Root], Sequence[Straggler]], advice: Advice
) -> Iterator[Problem]:
    """One for each gang with stragglers *present*: always a notice, for the gang goes on."""
    for root in roots:
        if slow := present(root):
            yield _problem(root, slow, advice)


def _problem(root: Root, slow: Sequence[Straggler], advice: Advice) -> Problem:
    gang, space = gang_text(root.ref), root.ref.namespace
    subject = advice.subject.format(gang=gang, name=root.ref.name, namespace=space)
    command = advice.ask_gang.format(
        gang=shell_word(gang, "GANG"), name=shell_word(root.ref.name, "GANG"), namespace=shell_word(space, "NAMESPACE")
    )
    first = min(slow, key=lambda each: each.since)
    return Problem(
        key=key_of("straggler", space, gang, stamp(first.since)),
        since=first.since,
        severity=Severity.NOTICE,
        cause="straggler",
        reason="is slow",
        subject=subject,
        title=f"{subject} is {effect_of(first)}",
        namespace=space if advice.has_namespaces else "",
        gang=gang if advice.has_namespaces else root.ref.name,
        nodes=tuple(dict.fromkeys(each.node for each in slow if each.node)),
        happened=as_text([sentence_of(each) for each in slow]),
        did=as_text(["healthd does nothing about it"]),
        todo=as_text(["see what else runs on that node, and what its clocks and disks do"]),
        command=command,
        runbook="straggler",
        rank=1,
    )
