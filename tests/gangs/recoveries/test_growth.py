"""A Job and a StatefulSet, with the controllers of Kubernetes itself, without a spare and with a node that returns."""

from __future__ import annotations

import pytest

from tests.gangs.recoveries.stage import Stage
from tests.gangs.recoveries.stories import shrinks_and_grows_back
from tests.lab.kinds.fixtures import of_kinds

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize("kind", of_kinds(["Job", "StatefulSet"]), indirect=True)
async def test_it_runs_on_smaller_and_is_as_large_as_before_when_its_node_returns(stage: Stage) -> None:
    await shrinks_and_grows_back(stage)
