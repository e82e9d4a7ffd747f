"""The controller's request to an agent, to publish the newest minutes of the work of its pods."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api import ANNOTATION_PUBLISH_WORK
from healthd.core.node.work_request import LONGEST, patch, read
from tests.builders import a_node
from tests.fakes import START

UNTIL = START + timedelta(seconds=40)


def test_an_agent_reads_until_when_it_is_asked() -> None:
    asked = a_node("node-a", annotations=patch(UNTIL)["metadata"]["annotations"])

    assert read(asked, START) == UNTIL
    assert read(asked, UNTIL) is None
    assert read(a_node("node-a"), START) is None


@pytest.mark.parametrize("text", ["", "soon", "2026-11-01", "2026-11-01T00:00:00", "9999-01-01T00:00:00Z", "9" * 5000])
def test_what_makes_no_sense_asks_for_nothing(text: str) -> None:
    assert read(a_node("node-a", annotations={ANNOTATION_PUBLISH_WORK: text}), START) is None


def test_nothing_is_asked_for_long() -> None:
    late = START + LONGEST + timedelta(seconds=1)

    assert read(a_node("node-a", annotations=patch(late)["metadata"]["annotations"]), START) is None
