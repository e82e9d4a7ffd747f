"""What is refused to a recovery is shown while it lasts, from the Events that are kept of it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from healthd.core.api import ObjectMeta, ObjectReference, Occurrence
from healthd.core.api.model import Phase
from healthd.core.report.refusals import refusal_of
from tests.core.gangs import a_recovery_in
from tests.fakes import START

LATER = START + timedelta(minutes=1)
QUOTA = 'pods "llama-2" is forbidden: exceeded quota: q'


def an_event(message: str = QUOTA, *, reason: str = "FailedCreate", of: str = "uid-train", at: datetime) -> Occurrence:
    about = ObjectReference(kind="Job", name="train", uid=of)
    meta = ObjectMeta(name="train.1", namespace="default")
    return Occurrence(
        metadata=meta, involved_object=about, type="Warning", reason=reason, message=message, last_timestamp=at
    )


def test_the_last_refusal_in_the_present_phase_is_named_with_its_time() -> None:
    events = [an_event("a policy", reason="Stuck", at=START), an_event(at=LATER)]

    assert refusal_of(a_recovery_in(Phase.STARTING), events) == f"at 00:01:00 UTC: {QUOTA}"


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(an_event(at=START - timedelta(seconds=1)), id="of an earlier phase"),
        pytest.param(an_event(of="uid-other", at=LATER), id="of another gang"),
        pytest.param(an_event(reason="BackoffLimitExceeded", at=LATER), id="that is no refusal"),
    ],
)
def test_an_event_does_not_count(event: Occurrence) -> None:
    assert refusal_of(a_recovery_in(Phase.STARTING), [event]) == ""


def test_a_recovery_that_has_ended_is_refused_nothing() -> None:
    assert refusal_of(a_recovery_in(Phase.RECOVERED), [an_event(at=LATER)]) == ""


def test_no_escape_of_a_policy_reaches_the_terminal() -> None:
    assert "\x1b" not in refusal_of(a_recovery_in(Phase.STARTING), [an_event("\x1b[31mno", at=LATER)])
