"""The page about alerting has what messages link to, and what it gives people to copy works."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from healthd.cli.configuration.reading import parse
from healthd.core.alerts.gangs import WAITS
from healthd.core.config import SinkKind
from healthd.telemetry.metrics import Metrics
from tests.docs.page import ROOT

PAGE = (ROOT / "docs" / "monitoring" / "alerting.md").read_text()
CORE = ROOT / "healthd" / "core" / "alerts"


def test_every_runbook_that_a_message_names_is_on_the_page() -> None:
    code = "".join(path.read_text() for path in sorted(CORE.glob("*.py")))
    named = {*re.findall(r'runbook="([a-z-]+)"', code), *(wait.runbook for wait in WAITS.values())}

    assert len(named) >= 10
    assert [name for name in sorted(named) if f"\n### {name}\n" not in PAGE] == []


def test_its_example_is_a_good_configuration() -> None:
    (example,) = re.findall(r"```yaml\n(alerts:\n.*?)```", PAGE, re.DOTALL)
    config = parse(textwrap.dedent(example).encode(), "docs/monitoring/alerting.md")

    assert [sink.kind for sink in config.alerts.sinks] == [SinkKind.PAGERDUTY, SinkKind.SLACK]


def test_every_metric_that_it_names_exists() -> None:
    known = {family.name for family in Metrics().registry.collect()}
    named = {name.removesuffix("_total") for name in re.findall(r"healthd_[a-z_]+", PAGE)}

    assert named - known == set()


def test_every_page_that_it_links_to_exists() -> None:
    links = re.findall(r"\]\(([\w./]+\.md)", PAGE)

    assert links
    assert [link for link in links if not Path(ROOT, "docs", "monitoring", link).is_file()] == []
