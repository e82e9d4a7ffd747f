"""Which sources should tell something and do not."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from healthd.core.api import Node, NodeStatus
from healthd.core.config import ProbesPolicy
from healthd.core.diagnosis.blindness import PATIENCE, Sources, blind_now, expected_by
from healthd.core.diagnosis.readings import Reading, Sample
from tests.builders import a_node
from tests.fakes import START

GPU = "0000:3b:00.0"
NOTHING = "NVML lists no GPU"


def reported(source: str = "nvml", *, after: timedelta = timedelta(0)) -> Sample:
    return Sample(source=source, at=START + after, readings=[Reading(GPU, f"{source}.state", "ok")])


def empty(source: str = "nvml", why: str = NOTHING, *, after: timedelta = timedelta(0)) -> Sample:
    return Sample(source=source, at=START + after, readings=[Reading("node", "nvml.gpus", 0)], empty=why)


def silent(source: str = "nvml", *, after: timedelta = timedelta(0)) -> Sample:
    return Sample(source=source, at=START + after, trouble="it does not answer")


def on_the_bus(*drivers: str) -> Sample:
    readings = [Reading(f"0000:{at:02x}:00.0", "pcie.gpu_driver", driver) for at, driver in enumerate(drivers)]
    return Sample(source="pcie", at=START, readings=[Reading("0000:5d:00.0", "pcie.nvme_width", 4), *readings])


def test_a_machine_without_a_gpu_needs_no_nvml() -> None:
    assert blind_now([on_the_bus(), empty()]) == {}


@pytest.mark.parametrize("driver", ["nvidia", "none"])
def test_a_gpu_on_the_bus_should_be_listed_by_nvml(driver: str) -> None:
    assert blind_now([on_the_bus(driver, driver), empty()]) == {
        "nvml": "NVML lists no GPU, and 2 NVIDIA GPUs are on the PCI bus"
    }


@pytest.mark.parametrize("driver", ["vfio-pci", "nouveau", "pci-stub"])
def test_a_gpu_that_is_kept_for_somebody_else_is_not_missed(driver: str) -> None:
    assert blind_now([on_the_bus(driver), empty()]) == {}


def test_the_configuration_can_say_that_there_are_gpus() -> None:
    blind = blind_now([empty()], expected_by(ProbesPolicy(gpus=8)))

    assert blind == {"nvml": "NVML lists no GPU, and probes.gpus is 8"}


def a_node_of(labels: dict[str, str], capacity: dict[str, str]) -> Node:
    return msgspec.structs.replace(a_node(labels=labels), status=NodeStatus(capacity=capacity))


@pytest.mark.parametrize(
    ("labels", "capacity", "is_blind"),
    [
        ({"nvidia.com/gpu.count": "8"}, {}, True),
        ({}, {"nvidia.com/gpu": "8"}, True),
        ({}, {"nvidia.com/mig-1g.10gb": "56"}, True),
        ({}, {"cpu": "64", "nvidia.com/gpu": "0"}, False),
        ({"nvidia.com/gpu.count": "0"}, {}, False),
        ({"nvidia.com/gpu.count": "some"}, {}, False),
        ({}, {"cpu": "64"}, False),
    ],
)
def test_the_node_itself_can_say_that_there_are_gpus(
    labels: dict[str, str], capacity: dict[str, str], is_blind: bool
) -> None:
    sources = Sources()
    sources.ingest_node(a_node_of(labels, capacity))
    sources.ingest_sample(empty())

    assert bool(sources.blind(START)) == is_blind


@pytest.mark.parametrize("source", ["edac", "infiniband", "pcie", "thermal"])
def test_a_source_that_had_readings_and_has_none_now_is_blind(source: str) -> None:
    nothing = Sample(source=source, at=START)

    assert blind_now([nothing]) == {}
    assert blind_now([reported(source), nothing]) == {source: "it has no readings, and it had some before"}


def test_what_was_read_before_a_restart_is_not_forgotten() -> None:
    before = Sources()
    before.ingest_sample(reported("edac"))
    sources = Sources()
    sources.load(before.answered, is_same_boot=False)
    sources.ingest_sample(Sample(source="edac", at=START))

    assert set(sources.blind(START)) == {"edac"}


def test_an_exporter_is_missed_only_where_there_are_gpus() -> None:
    assert blind_now([silent("dcgm")]) == {}
    assert set(blind_now([on_the_bus("nvidia"), silent("dcgm")])) == {"dcgm"}


def test_a_repair_may_leave_less_in_the_machine() -> None:
    sources = Sources()
    sources.ingest_sample(reported("edac"))
    sources.settle()
    sources.ingest_sample(Sample(source="edac", at=START))

    assert sources.blind(START + PATIENCE) == {}


def test_a_source_that_never_answered_is_blind_at_once() -> None:
    sources = Sources()
    sources.ingest_sample(silent())

    assert sources.blind(START) == {"nvml": "it does not answer"}


def test_one_that_answered_may_be_silent_for_a_moment() -> None:
    sources = Sources()
    sources.ingest_sample(reported())
    sources.ingest_sample(silent(after=timedelta(seconds=1)))
    sources.ingest_sample(silent(after=timedelta(seconds=50)))

    assert sources.blind(START + timedelta(seconds=59)) == {}
    assert set(sources.blind(START + timedelta(seconds=61))) == {"nvml"}


def test_one_that_answers_again_sees() -> None:
    sources = Sources()
    sources.ingest_sample(silent())
    sources.ingest_sample(reported())

    assert sources.blind(START + PATIENCE) == {}


def test_what_was_not_read_yet_is_not_known_in_a_new_boot() -> None:
    sources = Sources()
    sources.begin(["nvml", "pcie"], START)
    sources.ingest_sample(reported("pcie"))

    assert sources.blind(START) == {"nvml": "it was not read yet"}


def test_an_agent_that_starts_again_believes_its_last_life_for_a_moment() -> None:
    sources = Sources()
    sources.load(["nvml"], is_same_boot=True)
    sources.begin(["nvml"], START)

    assert sources.blind(START) == {}
    assert set(sources.blind(START + PATIENCE)) == {"nvml"}


def test_a_device_that_cannot_be_read_leaves_a_blind_spot_beside_all_that_was_read() -> None:
    sample = Sample(source="nvml", at=START, readings=reported().readings, unread="0000:3c:00.0 refuses every question")

    assert blind_now([sample]) == {"nvml": "0000:3c:00.0 refuses every question"}
