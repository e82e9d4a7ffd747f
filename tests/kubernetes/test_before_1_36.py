"""
An API server that serves no MutatingAdmissionPolicy, as before 1.36: the hint reaches pods by their template.

In a lab of 1.36 or newer it is one of those with what came since switched off, as far as healthd is known to depend on
it. `make kubernetes VERSION=1.35` runs this on a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from healthd.cli.commands.cluster.doctor import parse_target, read_chart
from healthd.cluster.crds import definitions
from healthd.cluster.remote import RemoteCluster
from healthd.core.api import ANNOTATION_RESUME_FROM, ANNOTATION_STOPPED_BY
from healthd.core.api.model import Phase
from healthd.core.report.doctor import HintPolicy, examine
from tests import quick_yaml
from tests.deploy.accounts import answer
from tests.deploy.kustomized import with_component
from tests.kubernetes.conftest import DEPLOY, SYSTEM
from tests.kubernetes.gangs import GANGS
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.scenario import Scenario
from tests.kubernetes.test_foreign_signs import condition
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane, Options
from tests.lab.fixtures import get
from tests.lab.jobset import start_jobset
from tests.lab.kubernetes import HAS_MUTATING_POLICIES
from tests.lab.modules import JOBSET, KWOK
from tests.lab.programs import LabError
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

POLICIES = ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings")
NOT_SERVED = ",".join(f"admissionregistration.k8s.io/v1/{each}=false" for each in POLICIES)
_STARTED_JOBS_ARE_FIXED = "--feature-gates=MutableSchedulingDirectivesForSuspendedJobs=false"
"""The template of a Job that was started once cannot be changed, unless its `status.startTime` was removed."""
_AS_BEFORE = Options(
    api_server_flags=(
        f"--runtime-config={NOT_SERVED}",
        "--disable-admission-plugins=MutatingAdmissionPolicy",
        _STARTED_JOBS_ARE_FIXED,
    ),
    controller_manager_flags=(_STARTED_JOBS_ARE_FIXED,),
)


@pytest.fixture(scope="module")
def kubernetes(built_control_plane: None, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane with healthd's kinds, the JobSet controller, and no policy for gangs."""
    get(KWOK, request)
    get(JOBSET, request)
    with ControlPlane(_AS_BEFORE if HAS_MUTATING_POLICIES else Options()) as control_plane:
        control_plane.apply(quick_yaml.dump_all(definitions()))
        control_plane.await_definitions()
        control_plane.kubectl("create", "namespace", SYSTEM)
        start_jobset(control_plane)
        yield control_plane


@pytest.fixture(scope="module")
def simulated(kubernetes: ControlPlane) -> SimulatedNodes:
    nodes = SimulatedNodes(kubernetes)
    nodes.start()
    return nodes


def test_the_policy_for_gangs_cannot_be_installed(kubernetes: ControlPlane) -> None:
    with pytest.raises(LabError, match="MutatingAdmissionPolicy"):
        kubernetes.apply(DEPLOY / "admission-gangs.yaml")


def test_all_that_is_shipped_for_it_is_taken(kubernetes: ControlPlane, tmp_path: Path) -> None:
    theirs = with_component("before-1.36", tmp_path)

    reported = kubernetes.kubectl("apply", "--dry-run=server", "-k", str(theirs))
    assert "daemonset.apps/healthd-agent created" in reported


@pytest.mark.parametrize("which", GANGS)
async def test_gang_on_a_broken_node_runs_again_on_a_spare(scenario: Scenario, replicas: Replicas, which: str) -> None:
    await replicas.add()
    await scenario.play(which)
    bad = scenario.node_of(rank=0)

    scenario.break_gpu(bad)
    recovery = await scenario.until_phase(Phase.RECOVERED)

    pods = await scenario.until_running(1)
    assert bad not in {pod.spec.node_name for pod in pods}
    assert scenario.spares[0] in {pod.spec.node_name for pod in pods}
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert scenario.ranks.overlaps == []


async def test_gang_that_comes_back_to_a_bad_node_is_held_until_the_node_is_cordoned(
    scenario: Scenario, replicas: Replicas
) -> None:
    await asyncio.gather(replicas.add(), scenario.play())
    bad = scenario.node_of(rank=1)

    condition(scenario, bad, "CperHardwareErrorFatal", "True")

    held = await scenario.until_phase(Phase.HELD)
    assert held.status.message == f"it came back to a bad node: {bad}; nothing keeps its pods off"
    assert bad in {pod.spec.node_name for pod in await scenario.until_running(1)}

    scenario.control_plane.kubectl("cordon", bad)

    await scenario.until_phase(Phase.RECOVERED)
    assert bad not in {pod.spec.node_name for pod in await scenario.until_running(2)}
    assert set(map(tuple, scenario.ranks.starts.values())) == {(0, 1, 2)}


@pytest.mark.parametrize("state", ["stopped by healthd", "stopped by its user", "running"])
def test_with_the_token_of_the_controller_only_the_start_time_of_a_job_that_it_stopped_can_be_removed(
    kubernetes: ControlPlane, token: str, state: str
) -> None:
    namespace = kubernetes.new_namespace()
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    note = {ANNOTATION_STOPPED_BY: "llama-1"} if state != "stopped by its user" else {}
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "rank", "image": "localhost/none"}]}}
    spec = {"suspend": state != "running", "template": pods}
    kubernetes.api.create(path, {"metadata": {"name": "llama", "annotations": note}, "spec": spec})

    def is_taken(body: Json) -> bool:
        return answer(kubernetes, token, ("PATCH", f"{path}/llama/status", body))[0] == HTTPStatus.OK

    assert is_taken({"status": {"startTime": None}}) == (state == "stopped by healthd")
    assert not is_taken({"status": {"startTime": None, "failed": 3}})
    assert not is_taken({"status": {"startTime": None}, "metadata": {"labels": {"a": "b"}}})


async def test_doctor_says_that_it_is_so(scenario: Scenario, remote: RemoteCluster) -> None:
    await scenario.play()

    chart = await read_chart(remote, parse_target("job/llama", scenario.namespace))

    assert chart.hint_policy is HintPolicy.NOT_SERVED
    reported = [remark.what for remark in examine(chart)]
    assert "the API server has no MutatingAdmissionPolicy (it is older than 1.36)" in reported
    assert any(ANNOTATION_RESUME_FROM in remark.remedy for remark in examine(chart))
    assert any("never on 1.30 to 1.33" in remark.why for remark in examine(chart))
