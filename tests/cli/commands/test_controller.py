"""`healthd controller`: what it refuses before it begins."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from healthd.cli.commands import controller
from healthd.cli.errors import UserError


def started(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    controller.add_arguments(parser)
    controller.run(parser.parse_args([*arguments]))


def test_an_alert_service_without_what_its_kind_needs_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "healthd.yaml"
    file.write_text("alerts:\n  sinks: [{name: oncall, kind: pagerduty}]\n")

    with pytest.raises(UserError, match=r"alerts\.sinks"):
        started("--config", str(file))


def test_a_namespace_that_no_admission_policy_names_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "ml-platform")

    with pytest.raises(UserError, match=r"in the namespace ml-platform: the admission policies name healthd-system"):
        started()


@pytest.mark.parametrize("own", ["healthd-system", "ml-platform"])
def test_a_budget_in_a_namespace_of_its_own_and_a_site_that_changed_all_names_are_taken(
    own: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "healthd.yaml"
    file.write_text("quarantine: {namespace: ml-platform}\n")
    monkeypatch.setenv("POD_NAMESPACE", own)

    with pytest.raises(UserError, match="there is no such file"):  # the next thing that it looks at
        started("--config", str(file), "--kubeconfig", str(tmp_path / "kubeconfig"))
