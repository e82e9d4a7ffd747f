"""Idle spares are checked in turns, one at a time, and whatever needs a spare comes first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from healthd.cluster.port import NotFound
from healthd.controller.cache.informers import read_everything
from healthd.controller.remediation.spare_checks import SpareChecks
from healthd.core.api import Node, NodeHealth, Pod, Recovery
from healthd.core.api.model import Phase
from healthd.core.api.names import (
    ANNOTATION_FAILED_CHECK,
    ANNOTATION_REMEDIATION,
    ANNOTATION_REPAIRED,
    ANNOTATION_RETRY,
)
from healthd.core.api.remediations import SpareCheck, SpareCheckOutcome
from healthd.core.node.check_pods import NAMESPACE
from healthd.core.recovery.gang import LastCheck
from healthd.core.recovery.nodes.spares import Claim, claim_patch, return_patch
from healthd.core.remediation.check_summary import CheckSummary, fitted
from healthd.core.remediation.node_check import CONTAINER
from healthd.core.remediation.spare_fleet import FINDING
from healthd.gangs import ADAPTERS
from tests.builders import a_pod, a_recovery
from tests.controller.remediation.site import Killed, Site
from tests.controller.remediation.test_two_leaders import Slow
from tests.core.remediation.situations import a_finding

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
WELL = CheckSummary(result="pass", expected_gpus=8, gpus=8, passed=["inventory", "gpu-memory"])
BAD = CheckSummary(result="fail", expected_gpus=8, gpus=8, failed={"gpu-memory": "0000:3b:00.0: a word was wrong"})
PASSED, FAILED = SpareCheckOutcome.PASSED, SpareCheckOutcome.FAILED
UNCHECKED, YIELDED = SpareCheckOutcome.UNCHECKED, SpareCheckOutcome.YIELDED


class SpareSite(Site):
    """A site with spares `gpu-1` and so on, each with eight GPUs."""

    def __init__(self, **policy: Any) -> None:
        self.said: list[tuple[str, str]] = []
        self.made: set[str] = set()
        """The names of all pods that were ever seen."""
        super().__init__(**{"check_by_pod": True, "check_spares_every": 24 * HOUR, **policy})

    def loop_over(self, cluster: Any) -> Any:
        """Beside the loop of remediation, the one of the spares."""
        loop = super().loop_over(cluster)
        self.spare_checks = SpareChecks(
            cluster,
            self.clock,
            self.state,
            self.config,
            self.requests,
            namespace="healthd-system",
            metrics=self.metrics,
            announce=lambda about, _kind, reason, _message: self.said.append((about.name, reason)),
        )
        return loop

    async def joins(self, name: str, product: str = "H100") -> None:
        """An idle spare joins."""
        await self.add(name, **{"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": product})
        ready = [{"type": "Ready", "status": "True"}]
        offers = {"conditions": ready, "allocatable": {"nvidia.com/gpu": "8"}, "capacity": {"nvidia.com/gpu": "8"}}
        await self.cluster.patch(Node, name, {"status": offers}, subresource="status")
        await self.returns(name)

    async def returns(self, name: str) -> None:
        """It is in the pool."""
        await self.cluster.patch(Node, name, return_patch(await self.cluster.get(Node, name)))

    async def is_claimed(self, name: str) -> None:
        """A recovery takes it."""
        claim = Claim(recovery="train-1", namespace="default", gang="train", gang_uid="uid-train", instead_of="gpu-9")
        await self.cluster.patch(Node, name, claim_patch(await self.cluster.get(Node, name), claim))

    async def recovers(self, phase: Phase, **status: Any) -> None:
        """A recovery goes on."""
        await self.cluster.create(a_recovery("train-1"))
        change = {"status": {"phase": phase.value, **status}}
        await self.cluster.patch(Recovery, "train-1", change, namespace="default", subresource="status")

    async def goes_on(self, times: int = 1, pause: timedelta = timedelta(seconds=10)) -> None:
        """Both loops look, *times* times."""
        for _ in range(times):
            await self.watches()
            await self.spare_checks.look()
            await self.look()
            self.clock.advance(pause)

    async def watches(self) -> None:
        """What the watches of the controller tell it."""
        await read_everything(self.cluster, self.state, ADAPTERS)
        if not self.has_loaded:
            assert await self.spare_checks.load()

    async def checked(self, name: str) -> SpareCheck | None:
        """The newest check of it on record."""
        return (await self.status(name)).spare_check

    async def outcome(self, name: str) -> SpareCheckOutcome | None:
        """How that ended."""
        check = await self.checked(name)
        return check.outcome if check is not None else None

    async def pods(self) -> list[Pod]:
        """The pods of checks that are not on their way out."""
        pods = (await self.cluster.list(Pod, namespace=NAMESPACE)).items
        self.made |= {pod.metadata.name for pod in pods}
        return [pod for pod in pods if pod.metadata.deletion_timestamp is None]

    async def under_check(self) -> list[str]:
        """The nodes on which they are."""
        return sorted(pod.spec.node_name for pod in await self.pods())

    async def ends_check(self, summary: CheckSummary | None = WELL, **status: Any) -> str:
        """The check that runs ends with *summary*, or as the kubelet says. Returns on which node."""
        (pod,) = await self.pods()
        name = pod.spec.node_name
        if summary is not None:
            boot = (await self.cluster.get(Node, name)).status.node_info.boot_id
            said = fitted(msgspec.structs.replace(summary, boot_id=boot)).decode()
            code = {"pass": 0, "fail": 3}.get(summary.result, 4)
            end = {"name": CONTAINER, "state": {"terminated": {"exitCode": code, "message": said}}}
            status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [end]}
        meta = pod.metadata
        await self.cluster.patch(Pod, meta.name, {"status": status}, namespace=NAMESPACE, subresource="status")
        await self.goes_on(1)
        return name

    async def next_check_ends(self, summary: CheckSummary | None = WELL) -> str:
        """The next check begins and ends."""
        await self.goes_on(2)
        return await self.ends_check(summary)

    async def note_on(self, name: str) -> str:
        """What its Node says for its agent."""
        return (await self.cluster.get(Node, name)).metadata.annotations.get(ANNOTATION_FAILED_CHECK, "")

    def sample(self, name: str, **labels: str) -> float | None:
        """A metric."""
        return self.metrics.registry.get_sample_value(f"healthd_spare_{name}", labels)


@pytest.fixture
async def site() -> AsyncIterator[SpareSite]:
    site = SpareSite()
    for name in ("gpu-1", "gpu-2", "gpu-3"):
        await site.joins(name)
    yield site
    site.cluster.close()


async def test_spares_are_checked_one_after_the_other_and_then_again_after_the_interval(site: SpareSite) -> None:
    seen = [await site.next_check_ends() for _ in range(3)]
    await site.goes_on(3)

    assert seen == ["gpu-1", "gpu-2", "gpu-3"]
    assert await site.pods() == []
    site.clock.advance(24 * HOUR)
    assert await site.next_check_ends() == "gpu-1"


async def test_one_spare_is_checked_at_a_time(site: SpareSite) -> None:
    await site.goes_on(5)

    assert await site.under_check() == ["gpu-1"]


async def test_a_pass_is_on_record_with_its_boot_and_shown(site: SpareSite) -> None:
    await site.next_check_ends()
    check = await site.checked("gpu-1")

    assert check is not None
    assert (check.outcome, check.passed_boot) == (PASSED, "boot-1")
    assert check.passed_at is not None
    assert site.sample("check_passed_timestamp_seconds", node="gpu-1") == check.passed_at.timestamp()
    assert site.sample("checks_total", outcome="passed") == 1
    assert site.state.last_checks["gpu-1"] is LastCheck.PASSED
    assert await site.phase("gpu-1") == "InService"


async def test_nothing_is_checked_by_default() -> None:
    site = SpareSite(check_spares_every=timedelta(0))
    await site.joins("gpu-1")
    await site.look(3)

    assert site.config.remediation.check_spares_every == timedelta(0)
    assert await site.pods() == []
    site.cluster.close()


async def test_the_pod_of_a_check_is_left_over_when_it_is_turned_off(site: SpareSite) -> None:
    await site.goes_on(1)
    assert await site.under_check() == ["gpu-1"]
    site.config = msgspec.structs.replace(
        site.config,
        remediation=msgspec.structs.replace(site.config.remediation, check_spares_every=timedelta(0)),
    )
    site.lead()
    await site.look(2)

    assert await site.pods() == []


# What comes first -----------------------------------------------------------------------------------------------------


async def test_a_claim_wins_and_the_check_is_gone_at_the_next_look(site: SpareSite) -> None:
    await site.goes_on(1)
    await site.is_claimed("gpu-1")
    await site.watches()
    await site.spare_checks.look()  # at once: no time passes

    assert "gpu-1" not in await site.under_check()
    assert await site.outcome("gpu-1") is YIELDED


async def test_a_spare_that_a_recovery_plans_with_is_free_before_the_claim(site: SpareSite) -> None:
    await site.goes_on(1)
    await site.recovers(Phase.RESERVING, replacements={"gpu-9": "gpu-1"})
    await site.watches()
    await site.spare_checks.look()

    assert await site.pods() == []


async def test_a_check_on_a_spare_that_no_recovery_takes_goes_on(site: SpareSite) -> None:
    await site.goes_on(1)
    await site.recovers(Phase.RESERVING, replacements={"gpu-9": "gpu-2"})
    await site.goes_on(2)

    assert await site.under_check() == ["gpu-1"]


@pytest.mark.parametrize("phase", [Phase.DETECTED, Phase.STOPPING, Phase.FENCING, Phase.CHOOSING, Phase.STARTING])
async def test_no_check_begins_while_a_recovery_may_need_a_spare(site: SpareSite, phase: Phase) -> None:
    await site.recovers(phase)
    await site.goes_on(3)

    assert await site.pods() == []


async def test_checks_go_on_once_the_gang_runs_again(site: SpareSite) -> None:
    await site.recovers(Phase.CONFIRMING)
    await site.goes_on(1)

    assert await site.under_check() == ["gpu-1"]


async def changed(site: SpareSite, what: str) -> None:
    """Something comes first on gpu-1."""
    match what:
        case "claimed":
            await site.is_claimed("gpu-1")
        case "cordoned":
            await site.cluster.patch(Node, "gpu-1", {"spec": {"unschedulable": True}})
        case "quarantined":
            await site.breaks("gpu-1")
        case "off":
            await site.note(ANNOTATION_REMEDIATION, "off", "gpu-1")
        case "no spare":
            await site.cluster.patch(Node, "gpu-1", {"metadata": {"labels": {"healthd.dev/spare": None}}})
        case "in use":
            used = {"limits": {"nvidia.com/gpu": "1"}}
            pod = msgspec.to_builtins(a_pod("low-priority", node="gpu-1"))
            pod["spec"]["containers"] = [{"name": "main", "resources": used}]
            await site.cluster.create(msgspec.convert(pod, Pod))
        case "other":
            await site.note("weave.works/kured-reboot-in-progress", "true", "gpu-1")
        case "gone":
            await site.cluster.delete(Node, "gpu-1")
        case "replaced":
            await site.cluster.delete(Node, "gpu-1")
            await site.comes_anew("gpu-1", "another")


CHANGES = ("claimed", "cordoned", "quarantined", "off", "no spare", "in use", "other", "gone", "replaced")


@pytest.mark.parametrize("what", CHANGES)
async def test_such_a_node_is_not_checked(site: SpareSite, what: str) -> None:
    await changed(site, what)
    await site.goes_on(2)

    assert await site.under_check() in (["gpu-2"], [])


@pytest.mark.parametrize("what", CHANGES)
async def test_what_comes_during_a_check_ends_it(site: SpareSite, what: str) -> None:
    await site.goes_on(1)
    await changed(site, what)
    await site.goes_on(2)

    assert "gpu-1" not in await site.under_check()
    assert await site.outcome("gpu-1") is (FAILED if what == "quarantined" else YIELDED)
    assert await site.note_on("gpu-1") == "" if what != "gone" else True


async def test_a_pod_of_others_is_not_ended(site: SpareSite) -> None:
    await site.goes_on(1)
    await changed(site, "in use")
    await site.goes_on(2)

    pod = await site.cluster.get(Pod, "low-priority", "default")
    assert pod.metadata.deletion_timestamp is None


# Results --------------------------------------------------------------------------------------------------------------


async def failed_and_confirmed(site: SpareSite) -> None:
    """gpu-1 fails, and gpu-2 passes after it."""
    assert await site.next_check_ends(BAD) == "gpu-1"
    assert await site.next_check_ends() == "gpu-2"
    await site.goes_on(1)


async def test_a_failure_alone_takes_nothing_out(site: SpareSite) -> None:
    await site.next_check_ends(BAD)

    assert await site.outcome("gpu-1") is FAILED
    assert await site.note_on("gpu-1") == ""
    assert site.state.last_checks["gpu-1"] is LastCheck.FAILED
    assert ("gpu-1", "SpareCheckFailed") in site.said
    assert site.sample("check_failed", node="gpu-1") == 1


async def test_it_is_taken_out_once_another_of_its_kind_has_passed(site: SpareSite) -> None:
    await failed_and_confirmed(site)

    assert "gpu-memory: 0000:3b:00.0: a word was wrong" in await site.note_on("gpu-1")
    assert ("gpu-1", "SpareTakenOut") in site.said
    assert site.sample("check_failed", node="gpu-1") is None


async def test_another_spare_is_checked_at_once_after_a_failure_although_it_is_not_due(site: SpareSite) -> None:
    for _ in range(3):
        await site.next_check_ends()
    site.clock.advance(24 * HOUR)
    assert await site.next_check_ends(BAD) == "gpu-1"
    await site.goes_on(1)

    assert await site.under_check() == ["gpu-2"]


async def test_the_note_is_taken_off_when_its_agent_has_reported_it(site: SpareSite) -> None:
    await failed_and_confirmed(site)
    finding = msgspec.structs.replace(a_finding("spare-check-failed"), id=FINDING)
    await site.report(finding, name="gpu-1")
    await site.goes_on(2)
    check = await site.checked("gpu-1")

    assert check is not None
    assert check.reported_at is not None
    assert await site.note_on("gpu-1") == ""


async def test_two_failures_of_a_kind_in_a_row_take_nothing_out_and_stop_the_checks(site: SpareSite) -> None:
    seen = [await site.next_check_ends(BAD) for _ in range(2)]
    await site.goes_on(5)
    site.clock.advance(48 * HOUR)
    await site.goes_on(3)

    assert seen == ["gpu-1", "gpu-2"]
    assert await site.pods() == []
    assert [await site.note_on(name) for name in ("gpu-1", "gpu-2", "gpu-3")] == ["", "", ""]
    assert [said for said in site.said if said[1] == "SpareChecksInDoubt"] == [
        ("gpu-1", "SpareChecksInDoubt"),
        ("gpu-2", "SpareChecksInDoubt"),
    ]
    assert site.sample("checks_in_doubt") == 1


async def test_a_person_lets_the_checks_go_on(site: SpareSite) -> None:
    for _ in range(2):
        await site.next_check_ends(BAD)
    await site.note(ANNOTATION_RETRY, site.clock.now().isoformat(), "gpu-2")
    seen = [await site.next_check_ends() for _ in range(1)]

    assert seen == ["gpu-3"]
    assert site.sample("checks_in_doubt") == 0


async def test_spares_of_another_kind_are_checked_while_the_check_of_one_kind_is_in_doubt(site: SpareSite) -> None:
    for _ in range(2):
        await site.next_check_ends(BAD)
    await site.joins("other-1", product="B200")
    await site.goes_on(2)

    assert await site.under_check() == ["other-1"]


async def test_one_spare_is_out_at_a_time(site: SpareSite) -> None:
    await failed_and_confirmed(site)
    assert await site.next_check_ends(BAD) == "gpu-3"
    assert await site.next_check_ends() == "gpu-2"
    await site.goes_on(3)

    assert await site.note_on("gpu-1") != ""
    assert await site.note_on("gpu-3") == ""
    await site.note(ANNOTATION_REPAIRED, site.clock.now().isoformat(), "gpu-1")
    await site.goes_on(3)
    assert await site.note_on("gpu-1") == ""
    assert await site.note_on("gpu-3") != ""


async def test_one_that_was_repaired_in_the_moment_is_not_taken_out(site: SpareSite) -> None:
    await site.next_check_ends(BAD)
    await site.goes_on(2)
    assert await site.under_check() == ["gpu-2"]

    async def repaired() -> None:
        site.link.before_write = None
        await site.note(ANNOTATION_REPAIRED, site.clock.now().isoformat(), "gpu-1")

    site.link.before_write = repaired  # while the pass of gpu-2 is recorded: no watch has shown it
    await site.ends_check()
    check = await site.checked("gpu-1")

    assert check is not None
    assert check.taken_out_at is None
    assert await site.note_on("gpu-1") == ""


async def test_without_the_right_to_say_it_the_write_is_not_tried_all_the_time(site: SpareSite) -> None:
    await site.next_check_ends(BAD)
    site.link.forbidden.add("Node")
    await site.next_check_ends()
    writes = site.link.writes
    refused: list[str] = []
    site.link.refused = refused
    await site.goes_on(6)

    assert len(refused) <= 1
    assert site.link.writes - writes <= 4  # the next check goes on


async def test_the_only_spare_is_not_taken_out_by_itself() -> None:
    site = SpareSite()
    await site.joins("gpu-1")
    await site.next_check_ends(BAD)
    await site.goes_on(5)

    assert await site.note_on("gpu-1") == ""
    assert site.sample("check_failed", node="gpu-1") == 1
    site.cluster.close()


@pytest.mark.parametrize(
    ("summary", "status"),
    [
        (CheckSummary(result="unchecked", expected_gpus=8), {}),
        (CheckSummary(result="busy", busy=["pid 7"]), {}),
        (CheckSummary(result="pass", expected_gpus=8, gpus=7, passed=["inventory", "gpu-memory"]), {}),
        (None, {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
        (None, {"phase": "Failed", "reason": "DeadlineExceeded"}),
        (None, {"phase": "Failed", "reason": "UnexpectedAdmissionError"}),
        (
            None,
            {
                "phase": "Failed",
                "containerStatuses": [{"name": CONTAINER, "state": {"terminated": {"exitCode": 1, "message": "?"}}}],
            },
        ),
    ],
)
async def test_where_nothing_was_learned_nothing_follows(
    site: SpareSite, summary: CheckSummary | None, status: dict[str, Any]
) -> None:
    await site.goes_on(1)
    await site.ends_check(summary, **status)
    assert await site.outcome("gpu-1") is UNCHECKED
    assert await site.next_check_ends() == "gpu-2"
    await site.goes_on(3)

    assert await site.note_on("gpu-1") == ""
    assert site.state.last_checks["gpu-1"] is LastCheck.NONE


async def test_a_pod_that_never_starts_is_given_up_after_its_time(site: SpareSite) -> None:
    await site.goes_on(1)
    site.clock.advance(25 * MINUTE)
    await site.goes_on(1)

    assert await site.outcome("gpu-1") is UNCHECKED


async def test_a_result_from_before_a_boot_is_no_pass(site: SpareSite) -> None:
    await site.goes_on(1)
    (pod,) = await site.pods()
    said = fitted(msgspec.structs.replace(WELL, boot_id="boot-0")).decode()
    end = {"name": CONTAINER, "state": {"terminated": {"exitCode": 0, "message": said}}}
    status = {"phase": "Succeeded", "containerStatuses": [end]}
    await site.cluster.patch(Pod, pod.metadata.name, {"status": status}, namespace=NAMESPACE, subresource="status")
    await site.goes_on(1)

    assert await site.outcome("gpu-1") is UNCHECKED


async def test_a_spare_that_cannot_be_checked_holds_up_no_other(site: SpareSite) -> None:
    unready = {"conditions": [{"type": "Ready", "status": "False"}]}
    await site.cluster.patch(Node, "gpu-1", {"status": unready}, subresource="status")
    seen = [await site.next_check_ends() for _ in range(2)]
    await site.goes_on(3)

    assert seen == ["gpu-2", "gpu-3"]
    assert await site.pods() == []


# A controller that dies, a clock that is set --------------------------------------------------------------------------


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 8))
async def test_another_controller_goes_on_wherever_the_first_one_died(dies_at: int, before: bool) -> None:
    site = SpareSite()
    for name in ("gpu-1", "gpu-2"):
        await site.joins(name)
    site.lead(dies_at=dies_at, before=before)
    for _ in range(12):
        try:
            await site.goes_on(1)
            if await site.pods():
                await site.ends_check(BAD if await site.under_check() == ["gpu-1"] else WELL)
        except Killed:
            site.lead()
    checks = [await site.checked(name) for name in ("gpu-1", "gpu-2")]

    assert site.link.dies_at == 0  # it did die
    assert [check.outcome for check in checks if check] == [FAILED, PASSED]
    assert len(site.made) == 2
    assert "a word was wrong" in await site.note_on("gpu-1")
    assert await site.note_on("gpu-2") == ""
    assert await site.pods() == []
    site.cluster.close()


async def test_a_check_that_a_deposed_controller_began_meanwhile_is_followed(site: SpareSite) -> None:
    other = site.spare_checks
    site.lead()
    await site.watches()  # the new leader has read all records
    site.has_loaded = await site.loop.load() and await other.load()
    await other.look()
    assert await site.under_check() == ["gpu-1"]
    await site.is_claimed("gpu-1")
    site.clock.advance(6 * MINUTE)
    await site.goes_on(2)

    assert "gpu-1" not in await site.under_check()
    assert await site.outcome("gpu-1") is YIELDED


async def test_a_clock_that_is_set_back_stops_no_turn(site: SpareSite) -> None:
    for _ in range(3):
        await site.next_check_ends()
    site.clock.advance(-5 * HOUR)
    seen = [await site.next_check_ends() for _ in range(3)]
    await site.goes_on(3)

    assert seen == ["gpu-1", "gpu-2", "gpu-3"]
    assert await site.pods() == []


async def test_a_node_that_joins_again_is_checked_anew(site: SpareSite) -> None:
    for _ in range(3):
        await site.next_check_ends()
    await site.cluster.delete(Node, "gpu-2")
    await site.cluster.delete(NodeHealth, "gpu-2")
    await site.goes_on(1)
    await site.joins("gpu-2")
    await site.goes_on(2)

    assert await site.under_check() == ["gpu-2"]


async def test_a_missing_component_is_said_once_and_tried_again_later(site: SpareSite) -> None:
    site.link.forbidden.add("PodManifest")
    await site.goes_on(1)
    writes = site.link.writes
    await site.goes_on(5)

    assert await site.pods() == []
    assert site.link.writes - writes < 3
    site.link.forbidden.clear()
    site.clock.advance(HOUR)
    await site.goes_on(2)
    with pytest.raises(NotFound):
        await site.cluster.get(Pod, "none", NAMESPACE)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_two_leaders_make_one_pod_for_one_check(seed: int) -> None:
    random, site = Random(seed), SpareSite()
    await site.joins("gpu-1")
    loops = []
    for _ in range(2):
        site.loop_over(Slow(site.cluster, random))
        loops.append(site.spare_checks)
    for turn in range(8):
        await read_everything(site.cluster, site.state, ADAPTERS)
        if not turn:
            assert all([await loop.load() for loop in loops])
        await asyncio.gather(*(loop.look() for loop in loops))
        site.clock.advance(timedelta(seconds=10))
        assert len(await site.pods()) <= 1, f"turn {turn}"
        if turn == 4:
            await site.ends_check()
    check = await site.checked("gpu-1")
    site.cluster.close()

    assert check is not None
    assert (check.outcome, len(site.made)) == (PASSED, 1)
