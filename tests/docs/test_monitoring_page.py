"""The page about monitoring: its example of a heartbeat is a good configuration."""

from __future__ import annotations

import re
from datetime import timedelta

from healthd.cli.configuration.reading import parse
from tests.docs.page import ROOT

PAGE = (ROOT / "docs" / "monitoring" / "README.md").read_text()


def test_its_example_of_a_heartbeat_is_a_good_configuration() -> None:
    (example,) = re.findall(r"```yaml\n(heartbeat:\n.*?)```", PAGE, re.DOTALL)
    config = parse(example.encode(), "docs/monitoring/README.md")

    assert config.heartbeat.url_file == "/etc/healthd-alerts/heartbeat"
    assert config.heartbeat.interval == timedelta(minutes=1)
