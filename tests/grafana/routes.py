"""The example of an Alertmanager configuration, and what a test changes of it to run it on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests import quick_yaml
from tests.grafana.promtool import ROOT

EXAMPLE = ROOT / "grafana" / "alertmanager" / "alertmanager.yml"


def example(url_of: Callable[[str], str]) -> dict[str, Any]:
    """The example, but each receiver is a webhook at `url_of(its name)`. Only the heartbeat hears of no end."""
    config: dict[str, Any] = quick_yaml.load(EXAMPLE.read_text())
    config["receivers"] = [
        {"name": name, "webhook_configs": [{"url": url_of(name), "send_resolved": name != "heartbeat"}]}
        for name in (receiver["name"] for receiver in config["receivers"])
    ]
    return config
