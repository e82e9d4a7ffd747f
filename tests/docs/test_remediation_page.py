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


def test_each_configuration_on_the_page_switches_it_on() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    texts = ["\n".join(line[3:] for line in block.splitlines()) for block in blocks]
    policies = [parse(text.encode(), "page").remediation for text in texts]

    assert [(policy.at_once, policy.hands) for policy in policies] == [
        (1, ("nvsentinel-gpu-reset", "nvsentinel-reboot")),
        (1, ("healthd-gpu-reset", "healthd-reboot")),
    ]
