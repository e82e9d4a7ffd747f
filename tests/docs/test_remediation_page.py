"""docs/remediation.md: every hand that healthd knows is there, and the configuration on the page is a good one."""

from __future__ import annotations

import re

import pytest

from healthd.cli.configuration.reading import parse
from healthd.core.remediation.hands.shipped import shipped_hands
from tests.docs.page import ROOT

PAGE = (ROOT / "docs" / "remediation.md").read_text()


@pytest.mark.parametrize("name", [hand.name for hand in shipped_hands()])
def test_every_hand_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_configuration_on_the_page_switches_it_on() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    policy = parse("\n".join(line[3:] for line in block.splitlines()).encode(), "page").remediation

    assert policy.at_once == 1
    assert policy.hands == ("nvsentinel-gpu-reset", "nvsentinel-reboot")
