"""`healthd controller`: what it refuses before it begins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from healthd.cli.commands import controller
from healthd.cli.errors import UserError


def test_an_alert_service_without_what_its_kind_needs_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "healthd.yaml"
    file.write_text("alerts:\n  sinks: [{name: oncall, kind: pagerduty}]\n")
    parser = argparse.ArgumentParser()
    controller.add_arguments(parser)

    with pytest.raises(UserError, match=r"alerts\.sinks"):
        controller.run(parser.parse_args(["--config", str(file)]))
