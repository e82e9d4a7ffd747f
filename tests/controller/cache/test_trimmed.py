"""What the cache keeps of a pod: there may be a hundred thousand."""

from __future__ import annotations

from msgspec.structs import replace

from healthd.controller.cache.informers import trimmed_pod
from healthd.core.api import Pod
from healthd.core.api.kubernetes.pods import Container, ContainerResources, EnvVar, Volume
from healthd.core.config import HangPolicy
from healthd.core.node.pod_devices import amount_of, devices_of
from healthd.core.recovery.hangs.gang_silence import observed_silence
from tests.builders import a_pod
from tests.core.recovery.silences import NOW, a_gpu_gang, gpus, polls_unseen


def a_pod_with(*containers: Container) -> Pod:
    pod = a_pod("train-0")
    return replace(pod, spec=replace(pod.spec, containers=[*containers], volumes=[Volume(name="data")]))


def a_container(**resources: dict[str, str]) -> Container:
    return Container(image="train", env=[EnvVar(name="A", value="b")], resources=ContainerResources(**resources))


TRAINS = a_container(limits={"cpu": "8", "nvidia.com/gpu": "8"}, requests={"cpu": "4", "rdma/hca": "1"})
SERVES = a_container(limits={"memory": "1Gi"})


def test_it_is_known_which_devices_a_pod_holds() -> None:
    """By these a rank is distinguished from a launcher, and one that has all GPUs of its node from others."""
    pod = a_pod_with(TRAINS, SERVES)
    trimmed = trimmed_pod(pod)

    assert devices_of(trimmed) == devices_of(pod) == {"nvidia.com/gpu", "rdma/hca"}
    assert amount_of("nvidia.com/gpu", trimmed) == 8


def test_nothing_else_is_kept() -> None:
    trimmed = trimmed_pod(a_pod_with(TRAINS, SERVES))
    (container,) = trimmed.spec.containers

    assert (container.image, container.env, trimmed.spec.volumes) == ("", [], [])
    assert trimmed_pod(a_pod_with(SERVES)).spec.containers == []


def test_pods_that_hold_the_same_share_it() -> None:
    first, second = (trimmed_pod(a_pod_with(TRAINS)).spec.containers[0] for _ in range(2))

    assert first is second


def test_a_gang_hangs_by_its_gpus_as_the_cache_shows_it() -> None:
    view = a_gpu_gang(*([polls_unseen(number), gpus()] for number in range(3)))
    cached = replace(view, pods=tuple(map(trimmed_pod, view.pods)))

    assert observed_silence(cached, HangPolicy(), NOW) is not None
