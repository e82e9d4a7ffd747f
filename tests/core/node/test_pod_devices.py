"""Which devices a pod holds, and whether other pods of its node can have a GPU."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from healthd.core.api.kubernetes.pods import Container, ContainerResources
from healthd.core.node.pod_devices import has_all_gpus
from tests.core.recovery.silences import a_rank, offering, with_gpus


@pytest.mark.parametrize(
    ("pod", "capacity"),
    [
        pytest.param(with_gpus("4"), {"nvidia.com/gpu": "8"}, id="half of them"),
        pytest.param(with_gpus("8"), {}, id="the node lists none"),
        pytest.param(with_gpus("8"), {"nvidia.com/gpu": "0"}, id="the node has none now"),
        pytest.param(
            with_gpus("8"), {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "7"}, id="others are shared out"
        ),
        pytest.param(with_gpus("8"), {"nvidia.com/gpu": "many"}, id="no number"),
        pytest.param(with_gpus("8", resource="example.com/hca"), {"nvidia.com/gpu": "8"}, id="another device"),
        pytest.param(with_gpus("9" * 5000), {"nvidia.com/gpu": "8"}, id="an absurd number"),
        pytest.param(Container(image="train"), {"nvidia.com/gpu": "8"}, id="no device"),
    ],
)
def test_gpus_count_for_no_pod_that_may_share_them(pod: Container, capacity: dict[str, str]) -> None:
    rank = a_rank(0)
    rank = replace(rank, spec=replace(rank.spec, containers=[pod]))

    assert not has_all_gpus(rank, offering("node-0", capacity))


def test_the_containers_of_a_pod_may_have_all_gpus_together() -> None:
    rank = a_rank(0)
    requested = Container(image="b", resources=ContainerResources(requests={"nvidia.com/gpu": "4"}))
    rank = replace(rank, spec=replace(rank.spec, containers=[with_gpus("4"), requested]))

    assert has_all_gpus(rank, offering("node-0", {"nvidia.com/gpu": "8"}))
