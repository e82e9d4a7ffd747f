"""What the doctor says of the checkpoints of a gang that runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from healthd.core.api import ObjectMeta
from healthd.core.api.save_stats import Concern, Save, Saves
from healthd.core.report.doctor import Chart, RemarkLevel
from healthd.core.report.doctor.saves import examine
from tests.core.gangs import a_root
from tests.fakes import START

GOOD = Saves(good=[Save(step=n, at=START + timedelta(minutes=10 * n)) for n in range(5)])


def chart(saves: Saves, **root: Any) -> Chart:
    now = START + timedelta(minutes=47)
    return Chart(kind="Job", meta=ObjectMeta(name="train"), spec={}, root=a_root(saves=saves, **root), now=now)


def test_the_cost_of_a_fault_is_noted() -> None:
    (remark,) = examine(chart(GOOD))

    assert (remark.level, remark.what) == (RemarkLevel.NOTE, "a fault now would cost 7m of work")
    assert "step 4" in remark.why


@pytest.mark.parametrize("concern", Concern)
def test_every_concern_that_stands_is_a_risk_with_a_remedy(concern: Concern) -> None:
    remarks = list(examine(chart(Saves(concerns=[concern], why_refused="torn"))))

    assert [remark.level for remark in remarks] == [RemarkLevel.RISKS]
    assert remarks[0].remedy


def test_a_gang_that_a_fault_would_hold_cannot_be_recovered() -> None:
    torn = Saves(good=GOOD.good, concerns=[Concern.REFUSED], why_refused="torn", none_loads=True)

    prevents, note = examine(chart(torn))

    assert (prevents.level, prevents.why) == (RemarkLevel.PREVENTS, "torn")
    assert "nothing that is there would be resumed from" in prevents.what
    assert note.level is RemarkLevel.NOTE


def test_an_annotation_that_is_wrong_is_not_complained_about_twice() -> None:
    wrong = Saves(concerns=[Concern.REFUSED], why_refused="healthd.dev/checkpoint-format: no YAML", none_loads=True)

    assert list(examine(chart(wrong))) == []


def test_nothing_is_reported_of_a_gang_that_was_not_checked_or_that_stands_still() -> None:
    assert list(examine(chart(Saves()))) == []
    assert list(examine(chart(GOOD, suspended=True))) == []
