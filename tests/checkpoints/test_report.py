"""What a reader that may read some folders alone reports of places that lead elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.checkpoints.report import Inquiry, report_on


@pytest.mark.parametrize("place", ["step-7", "."])
def test_a_link_that_leads_in_a_circle_is_a_refusal_in_words(tmp_path: Path, place: str) -> None:
    (tmp_path / "step-7").symlink_to("step-7")
    report = report_on(Inquiry(location=str(tmp_path / place), bounds=[str(tmp_path)]))

    (rejected,) = report.rejected
    assert rejected.reason.endswith("step-7: a link that leads in a circle")


def test_a_link_to_what_may_not_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "step-7").symlink_to("/etc")
    report = report_on(Inquiry(location=str(tmp_path / "mine" / "step-7"), bounds=[str(tmp_path / "mine")]))

    (rejected,) = report.rejected
    assert "a link leads to /etc, which is outside of what the controller may read" in rejected.reason
    assert rejected.unread
