"""What Kueue adds to a group of plain pods: a finalizer that outlives a kubelet, labels of a flavor, and a Workload."""

from __future__ import annotations

import pytest

from healthd.core.api.model import Phase
from tests.gangs.recoveries.stage import Stage
from tests.gangs.recoveries.stories import assert_moved
from tests.lab.kinds.fixtures import of_kinds
from tests.lab.kinds.gangs import NAME
from tests.lab.simulated import PRODUCT

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.parametrize("kind", of_kinds(["plain pods in a queue"]), indirect=True),
]


async def test_a_pod_whose_kubelet_is_dead_holds_its_quota_until_its_end_is_proven(stage: Stage) -> None:
    await stage.play()
    scenario, bad = stage.scenario, stage.node_of_other()
    scenario.kill_kubelet(bad)

    scenario.break_gpu(bad)
    await scenario.until_phase(Phase.STOPPING)
    await scenario.until("the others to end", lambda: {pod.spec.node_name for pod in scenario.living()} == {bad})
    scenario.end_processes(bad)

    assert_moved(stage, bad, await stage.until_recovered())


async def test_it_goes_back_to_the_flavor_that_it_had(stage: Stage) -> None:
    scenario = stage.scenario
    taint = {"key": "example.com/leased", "operator": "Exists"}
    flavor = {"nodeLabels": {PRODUCT: scenario.product, "kubernetes.io/os": "linux"}, "tolerations": [taint]}
    made = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": scenario.namespace}}
    path = "/apis/kueue.x-k8s.io/v1beta1/resourceflavors"
    scenario.control_plane.api.create(path, {**made, "spec": flavor})
    await stage.play()
    bad = stage.node_of_other()

    scenario.break_gpu(bad)

    assert_moved(stage, bad, await stage.until_recovered())
    for pod in scenario.living():
        spec = scenario.get(f"pod/{pod.metadata.name}")["spec"]
        assert spec["nodeSelector"]["kubernetes.io/os"] == "linux"
        assert spec["tolerations"].count(taint) == 1


async def test_one_whose_user_deletes_its_workload_is_not_started_again(stage: Stage) -> None:
    await stage.play()
    scenario = stage.scenario

    scenario.kubectl("delete", f"workloads.kueue.x-k8s.io/{NAME}", "--wait=false")

    await scenario.until("no pod to be there", lambda: not scenario.pods())
    await scenario.until("its record to be gone", lambda: not scenario.get("podgangs")["items"])
    assert scenario.recoveries() == []
