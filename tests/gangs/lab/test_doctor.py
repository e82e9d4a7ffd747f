"""`healthd doctor` against a real API server."""

from __future__ import annotations

import json

import pytest

from healthd.cli.main import main
from tests.deploy.manifests import DEPLOY
from tests.gangs.lab import manifests
from tests.lab.control_plane import ControlPlane

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def test_a_job_is_examined_as_the_api_server_has_it(
    control_plane: ControlPlane, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = manifests.job(parallelism=8, completions=8)
    control_plane.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(made))
    where = ["-n", namespace, "--kubeconfig", str(control_plane.kubeconfig)]

    assert main(["doctor", "job/train", *where]) == 1
    assert "healthd is not installed in this cluster" in capsys.readouterr().out
    control_plane.apply(DEPLOY / "crds.yaml")
    control_plane.await_definitions()

    code = main(["doctor", "job/train", *where, "--json"])

    reported = {remark["what"]: remark["level"] for remark in json.loads(capsys.readouterr().out)["remarks"]}
    assert code == 1
    assert [what for what, level in reported.items() if level == "prevents"] == [
        "no controller of healthd leads: nothing holds its Lease"
    ]
    assert reported["backoffLimit is 3, with 8 members"] == "risks"
    assert reported["the admission policy healthd-gangs is not installed"] == "risks"
    assert "nothing sets the resume point of container main" in reported


def test_a_job_of_a_name_that_is_not_there_is_said_so(
    control_plane: ControlPlane, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["doctor", "job/other", "-n", namespace, "--kubeconfig", str(control_plane.kubeconfig)])

    assert code == 2
    assert f"there is no job/other in namespace {namespace}" in capsys.readouterr().err
