"""What is said of a gang to which nothing has happened."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.core.api.save_stats import Save, Saves
from healthd.core.checkpoint.restart_cost import at_stake
from healthd.core.recovery.gang import GangOptions, RootOutcome
from healthd.core.report.explain_text import sections_without_incident
from tests.core.gangs import a_root
from tests.fakes import START

CHECKED = Saves(watched_since=START)


def explained(**fields: Any) -> list[str]:
    root = a_root(**fields)
    return [
        line
        for section in sections_without_incident(root, at_stake(root, START))
        for line in [section.title, *section.lines]
    ]


def test_what_the_first_fault_would_cost_is_reported() -> None:
    headline, title, cost = explained(saves=Saves(good=[Save(step=4, at=START)]))

    assert (headline, title) == ("job/train in default: no recovery so far", "The next fault")
    assert cost.startswith("  a fault now would cost 0s of work: the newest good checkpoint is step 4")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"ending": RootOutcome.COMPLETE}, "the gang has ended"),
        ({"deleting": True}, "the gang has ended"),
        ({"suspended": True}, "the gang does not run"),
        ({"suspended": True, "stopped_by": "train-1"}, "recovery train-1 stopped it and is gone"),
        ({"has_begun": False}, "the gang does not run"),
        ({"options": GangOptions(restart=True)}, "does not know where it saves; `healthd doctor job/train`"),
        ({"options": GangOptions(checkpoint="/c")}, "healthd was not asked to restart it"),
        ({}, "its checkpoints have not been read yet"),
        ({"saves": CHECKED}, "it is not known when it was started"),
    ],
)
def test_what_is_not_known_is_said_to_be_so_with_the_reason(fields: dict[str, Any], why: str) -> None:
    assert why in " ".join(" ".join(explained(**fields)).split())
