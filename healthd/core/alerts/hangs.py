"""The problems of gangs whose ranks have all fallen silent, while no recovery is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from healthd.core.alerts.advice import Advice
from healthd.core.alerts.problem import Problem, as_text, stamp
from healthd.core.api import GangRef
from healthd.core.api.incidents import Severity, key_of
from healthd.core.config.gangs import HangPolicy, SilenceMode
from healthd.core.hang.describe import describe
from healthd.core.hang.silence import Silence
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.hangs.gang_silence import mode_of
from healthd.core.recovery.hangs.silence_record import confirmed_silence, members_of, open_silence, what_follows
from healthd.core.recovery.recovery_status import gang_text
from healthd.core.shell_words import shell_word


def hanging(roots: Iterable[Root], policy: HangPolicy, now: datetime) -> list[Root]:
    """The gangs with an open record of a silence: few, so more is read of these alone."""
    return [
        root
        for root in roots
        if root.options.restart
        and not root.invalid
        and mode_of(root, policy) is not SilenceMode.IGNORE
        and open_silence(root, now) is not None
    ]


def hang_problems(
    roots: Iterable[Root], view: Callable[[GangRef], GangView], policy: HangPolicy, advice: Advice, now: datetime
) -> Iterator[Problem]:
    """
    One for each of *roots*, which are `hanging`, whose agents confirm it: its owner can change the record on the root.

    It becomes a page after `hang.floor`. Below that the job may still end by itself.
    """
    for root in roots:
        silence = confirmed_silence(view(root.ref), now)
        if silence is not None:
            yield _problem(root, silence, policy, advice, now)


def _problem(root: Root, silence: Silence, policy: HangPolicy, advice: Advice, now: datetime) -> Problem:
    gang, space = gang_text(root.ref), root.ref.namespace
    subject = advice.subject.format(gang=gang, name=root.ref.name, namespace=space)
    command = advice.ask_gang.format(
        gang=shell_word(gang, "GANG"), name=shell_word(root.ref.name, "GANG"), namespace=shell_word(space, "NAMESPACE")
    )
    return Problem(
        key=key_of("hang", space, gang, stamp(silence.since)),
        since=silence.since,
        severity=Severity.PAGE if now - silence.since >= policy.floor else Severity.NOTICE,
        cause="hang",
        reason="hangs",
        subject=subject,
        title=f"{subject} hangs: no rank has worked since {silence.since:%Y-%m-%d %H:%M:%S} UTC",
        namespace=space if advice.has_namespaces else "",
        gang=gang if advice.has_namespaces else root.ref.name,
        happened=as_text([describe(silence, members_of(silence, root)), silence.located]),
        did=as_text([what_follows(root, policy, silence)]),
        todo=as_text(
            ["see what its ranks wait for, in their logs and stacks; then delete one of its pods to restart it"]
        ),
        command=command,
        runbook="hang",
        rank=5,
    )
