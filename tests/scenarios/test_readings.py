"""Probes see what the kernel does not say, or says later."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api.model import CauseKind, Phase
from healthd.core.diagnosis.readings import Reading
from tests.scenarios.stage import GPU, Stage

pytestmark = pytest.mark.slow

NICS = [f"0000:{bus}:00.0" for bus in ("5d", "5e", "9a", "9b")]


def gpu_is(state: str) -> Reading:
    return Reading(GPU, "nvml.state", state)


def cable_is(link: str) -> Reading:
    return Reading(NICS[0], "ib.rail_link", link, "port 1")


def discarded(*packets: int) -> list[Reading]:
    return [Reading(nic, "eth.rx_discards_phy", count, "port 1") for nic, count in zip(NICS, packets, strict=True)]


async def pull_cable(stage: Stage) -> None:
    """For a minute, which is long enough to be taken for more than a hiccup."""
    stage.shows("node-1", cable_is("down"))
    await stage.run_for(minutes=1)
    stage.shows("node-1", cable_is("up"))
    await stage.run_for(seconds=15)


async def test_nvml_misses_the_gpu_before_the_kernel_says_so() -> None:
    stage = Stage(ranks=2, spares=1)
    stage.shows("node-1", gpu_is("ok"))
    await stage.run_for(minutes=5)
    stage.shows("node-1", gpu_is("lost"))
    recovery = await stage.run_until(Phase.RECOVERED)
    assert recovery.spec.cause.kind is CauseKind.HARDWARE
    assert stage.quarantined() == ["node-1"]

    stage.fault("node-1")
    await stage.run_for(minutes=1)
    (finding,) = stage.standing("node-1")

    assert (finding.rule, finding.also) == ("nvml-gpu-lost", ["xid-79"])
    assert {seen.source for seen in finding.evidence} == {"nvml", "kmsg"}
    assert len(stage.recoveries()) == 1


async def test_what_the_kernel_has_told_of_too_waits_for_a_person() -> None:
    stage = Stage(ranks=2, spares=1)
    stage.shows("node-1", gpu_is("lost"))
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_for(minutes=1)
    stage.shows("node-1", gpu_is("ok"))
    await stage.run_for(hours=1)
    assert stage.quarantined() == ["node-1"]

    stage.repair("node-1")
    await stage.run_for(minutes=1)

    assert stage.quarantined() == []


async def test_what_was_read_before_a_repair_became_known_does_not_outlast_it() -> None:
    stage = Stage(ranks=2, spares=1)
    stage.shows("node-1", Reading(GPU, "nvml.xid.79", 0))
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_for(minutes=1)
    assert stage.quarantined() == ["node-1"]

    stage.shows("node-1", Reading(GPU, "nvml.xid.79", 1))
    stage.repair("node-1")
    stage.clock.advance(timedelta(seconds=1))
    await stage.run_for(minutes=1)

    assert stage.quarantined() == []


async def test_cable_that_is_plugged_again_brings_its_node_back_after_the_wait() -> None:
    stage = Stage(ranks=2, spares=1)
    stage.shows("node-1", cable_is("up"))
    await stage.run_for(minutes=1)
    await pull_cable(stage)
    await stage.run_for(minutes=9)
    assert stage.quarantined() == ["node-1"]

    await stage.run_for(minutes=2)

    assert stage.quarantined() == []
    assert stage.pool() == ["node-1"]
    assert stage.places() == {"0": "node-0", "1": "node-2"}
    assert stage.root.attempt == 1


async def test_cable_that_was_only_touched_changes_nothing() -> None:
    stage = Stage(ranks=2, spares=1)
    stage.shows("node-1", cable_is("up"))
    await stage.run_for(minutes=1)
    stage.shows("node-1", cable_is("down"))
    await stage.run_for(seconds=20)
    stage.shows("node-1", cable_is("up"))
    await stage.run_for(minutes=5)

    assert stage.quarantined() == []
    assert stage.recoveries() == []


async def test_link_that_flaps_keeps_its_node_out_for_longer_each_time() -> None:
    stage = Stage(ranks=1, spares=1)
    stage.shows("node-1", cable_is("up"))
    for minutes_out in (10, 20, 40):
        await pull_cable(stage)
        await stage.run_for(minutes=minutes_out - 1)
        assert stage.quarantined() == ["node-1"]

        await stage.run_for(minutes=2)

        assert stage.quarantined() == []


async def test_agent_that_restarts_holds_a_node_whose_cable_is_still_out() -> None:
    stage = Stage(ranks=2, spares=1)
    stage.shows("node-1", cable_is("down"))
    await stage.run_for(minutes=2)
    stage.restart_agent("node-1")
    await stage.run_for(hours=1)
    assert stage.quarantined() == ["node-1"]

    stage.shows("node-1", cable_is("up"))
    await stage.run_for(minutes=11)

    assert stage.quarantined() == []


async def test_dcgm_that_dies_changes_nothing() -> None:
    stage = Stage(ranks=2, spares=1)
    stage.shows("node-1", Reading(GPU, "dcgm.xid.79", 3))
    await stage.run_for(minutes=5)
    stage.silence("node-1", "dcgm")
    await stage.run_for(hours=1)
    stage.hear("node-1", "dcgm")
    await stage.run_for(minutes=5)

    assert stage.standing("node-1") == []
    assert stage.quarantined() == []
    assert stage.recoveries() == []


async def test_nvml_that_dies_with_the_gpu_lost_does_not_bring_the_node_back() -> None:
    stage = Stage(ranks=2, spares=1)
    stage.shows("node-1", gpu_is("lost"))
    await stage.run_for(minutes=1)
    stage.silence("node-1", "nvml")
    await stage.run_for(hours=1)

    assert stage.quarantined() == ["node-1"]


async def test_congestion_on_all_nics_is_nobodys_fault() -> None:
    stage = Stage(ranks=2, spares=1)
    for minute in range(10):
        stage.shows("node-1", *discarded(*[minute * 100_000] * 4))
        await stage.run_for(minutes=1)

    assert stage.standing("node-1") == []
    assert stage.recoveries() == []


async def test_one_nic_that_discards_far_more_than_the_others_is_told_and_work_goes_on() -> None:
    stage = Stage(ranks=2, spares=1)
    for minute in range(10):
        stage.shows("node-1", *discarded(minute * 100_000, 0, 0, 0))
        await stage.run_for(minutes=1)

    assert [finding.id for finding in stage.standing("node-1")] == [f"{NICS[0]}/eth-receive-discards"]
    assert stage.quarantined() == []
    assert stage.recoveries() == []
