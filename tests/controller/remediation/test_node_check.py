"""A repaired node is checked by a pod, once for each check, and comes back only when that pod says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from healthd.controller.cache.informers import read_everything
from healthd.core.api import Node, NodeRemediation, Pod
from healthd.core.api.names import ANNOTATION_REMEDIATION, ANNOTATION_REPAIRED, LABEL_PROBATION
from healthd.core.api.remediations import NodePhase, Rung, RungOutcome
from healthd.core.node.check_pods import NAMESPACE
from healthd.core.remediation.check_summary import LONGEST, CheckSummary, fitted
from healthd.core.remediation.node_check import CONTAINER
from healthd.gangs import ADAPTERS
from tests.controller.remediation.site import HOME, POWER, Killed, Site
from tests.controller.remediation.test_two_leaders import Slow
from tests.core.remediation.situations import a_finding

MINUTE = timedelta(minutes=1)
WELL = CheckSummary(result="pass", expected_gpus=8, gpus=8, passed=["inventory", "ecc", "gpu-memory"])


def a_site(**policy: Any) -> Site:
    return Site(**{"check_by_pod": True, **policy})


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = a_site()
    await joined(site)
    yield site
    site.cluster.close()


async def joined(site: Site, name: str = "gpu-17", gpus: int = 8) -> None:
    """A node with GPUs joins."""
    await site.add(name, **{"nvidia.com/gpu.count": str(gpus)})
    await offers(site, gpus, name)


async def offers(site: Site, gpus: int, name: str = "gpu-17", *, ready: str = "True") -> None:
    """What its kubelet says."""
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [{"type": "Ready", "status": ready}]}
    await site.cluster.patch(Node, name, {"status": status}, subresource="status")


async def rebooted(site: Site) -> None:
    """The node broke, and its reboot was asked for and done."""
    await site.breaks()
    await site.look(2)
    await site.does()
    await site.look(2)


async def pods(site: Site) -> list[Pod]:
    return (await site.cluster.list(Pod, namespace=NAMESPACE)).items


async def boot_of(site: Site) -> str:
    return (await site.cluster.get(Node, "gpu-17")).status.node_info.boot_id


async def ends(
    site: Site, summary: CheckSummary | str = WELL, *, code: int = 0, phase: str = "", boot: str | None = None
) -> None:
    """The check that runs ends. *summary*: a text is the message itself."""
    (pod,) = [each for each in await pods(site) if each.status.phase not in ("Succeeded", "Failed")]
    if isinstance(summary, CheckSummary):
        said = msgspec.structs.replace(summary, boot_id=await boot_of(site) if boot is None else boot)
        summary = fitted(said).decode()
    end = {"terminated": {"exitCode": code, "message": summary}}
    status = {
        "phase": phase or ("Failed" if code else "Succeeded"),
        "containerStatuses": [{"name": CONTAINER, "state": end}],
    }
    await report(site, pod, **status)


async def report(site: Site, pod: Pod, **status: Any) -> None:
    """What the kubelet reports of *pod*."""
    await site.cluster.patch(Pod, pod.metadata.name, {"status": status}, namespace=NAMESPACE, subresource="status")


async def test_a_node_that_passes_comes_back_and_is_watched(site: Site) -> None:
    await rebooted(site)
    (pod,) = await pods(site)
    began = pod.metadata.creation_timestamp
    site.clock.advance(5 * MINUTE)
    await ends(site)
    await site.look(3)
    node, status = await site.cluster.get(Node, "gpu-17"), await site.status()

    assert (status.phase, status.attempts[-1].outcome, status.checked_at) == (
        NodePhase.PROBATION,
        RungOutcome.HELPED,
        began,
    )
    assert began is not None
    assert node.metadata.annotations[ANNOTATION_REPAIRED] == began.isoformat()
    assert node.metadata.labels[LABEL_PROBATION] == "true"
    assert (await pods(site), await site.slots()) == ([], {})
    await site.gives_back()
    await site.look(2)
    await site.after(timedelta(hours=25))
    assert await site.phase() is NodePhase.IN_SERVICE


async def test_the_pod_has_no_rights_and_asks_for_all_gpus(site: Site) -> None:
    await rebooted(site)
    (pod,) = await pods(site)
    (container,) = pod.spec.containers

    assert pod.spec.node_name == "gpu-17"
    assert container.resources.limits["nvidia.com/gpu"] == "8"
    assert container.image == "healthd:test"
    assert "--expect-gpus=8" in container.command
    assert pod.metadata.owner_references[0].kind == "Node"


async def test_its_own_pod_is_no_reason_to_wait_and_blocks_no_next_rung(site: Site) -> None:
    await rebooted(site)
    (pod,) = await pods(site)
    await report(site, pod, phase="Running")
    await site.after(21 * MINUTE)
    await site.look(2)
    status = await site.status()

    assert status.attempts[0].outcome is RungOutcome.NO_HELP
    assert "did not answer in 20m" in status.attempts[0].message
    assert status.attempts[-1].rung is Rung.POWER_CYCLE
    assert len(await site.asked(POWER)) == 1


FAILED = CheckSummary(result="fail", expected_gpus=8, gpus=7, failed={"inventory": "0000:3b:00.0 is lost"})


async def test_a_check_that_fails_leads_to_the_next_rung_and_says_why(site: Site) -> None:
    await rebooted(site)
    await ends(site, FAILED, code=3)
    await site.look(3)
    status = await site.status()

    assert (status.phase, status.checked_at) == (NodePhase.REMEDIATING, None)
    assert "inventory: 0000:3b:00.0 is lost" in status.attempts[0].message
    assert await pods(site) == []


@pytest.mark.parametrize(
    "summary",
    [
        CheckSummary(result="unchecked", expected_gpus=8),
        CheckSummary(result="pass", expected_gpus=8, gpus=8, passed=["inventory", "ecc"]),
        CheckSummary(result="pass", expected_gpus=8, gpus=7, passed=["inventory", "gpu-memory"]),
        CheckSummary(result="pass", expected_gpus=7, gpus=8, passed=["inventory", "gpu-memory"]),
        CheckSummary(result="pass", passed=["nics"]),
        CheckSummary(result="pass", expected_gpus=8, gpus=8, passed=["gpu-memory"]),
        msgspec.structs.replace(WELL, failed={"ecc": "a row waits"}),
    ],
)
async def test_a_machine_on_which_not_all_was_checked_waits_for_a_person(site: Site, summary: CheckSummary) -> None:
    await rebooted(site)
    await ends(site, summary, code=4 if summary.result == "unchecked" else 0)
    await site.look(3)
    status = await site.status()

    assert (status.phase, status.checked_at) == (NodePhase.AWAITING_PERSON, None)
    assert "nothing could be checked" in status.message
    assert await site.asked(POWER) == []


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Evicted", "The node was low on resource: memory."),
        ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"),
        ("UnexpectedAdmissionError", "Allocate failed: requested number of devices unavailable"),
    ],
)
async def test_a_pod_that_the_kubelet_ended_has_not_passed_whatever_it_says(
    site: Site, reason: str, message: str
) -> None:
    await rebooted(site)
    (pod,) = await pods(site)
    said = fitted(msgspec.structs.replace(WELL, boot_id=await boot_of(site))).decode()
    end = {"terminated": {"exitCode": 0, "message": said}}
    statuses = [{"name": CONTAINER, "state": end}]
    await report(site, pod, phase="Failed", reason=reason, message=message, containerStatuses=statuses)
    await site.look(3)
    status = await site.status()

    assert (status.attempts[0].outcome, status.checked_at) == (RungOutcome.NO_HELP, None)
    assert reason in status.attempts[0].message


async def test_a_pod_that_never_starts_has_not_passed(site: Site) -> None:
    await rebooted(site)
    (pod,) = await pods(site)

    assert f"kubectl describe pod -n healthd-checks {pod.metadata.name}" in (await site.status()).message
    await site.after(21 * MINUTE)
    await site.look(2)
    assert (await site.status()).attempts[0].outcome is RungOutcome.NO_HELP


async def test_after_a_boot_the_check_waits_for_the_gpus_of_the_device_plugin(site: Site) -> None:
    await offers(site, 0)
    await rebooted(site)

    assert await pods(site) == []
    assert "waits for 8 nvidia.com/gpu; the Node offers 0" in (await site.status()).message
    await offers(site, 8, ready="False")
    await site.look(1)
    assert "the Node to be ready" in (await site.status()).message
    await offers(site, 8)
    await site.look(2)
    assert len(await pods(site)) == 1


async def test_a_node_that_comes_up_with_fewer_gpus_has_not_passed(site: Site) -> None:
    await offers(site, 7)
    await rebooted(site)
    await site.after(21 * MINUTE)
    await site.look(2)
    status = await site.status()

    assert (status.attempts[0].outcome, await pods(site)) == (RungOutcome.NO_HELP, [])
    assert "the Node offers 7" in status.attempts[0].message


@pytest.mark.parametrize("boot", ["boot-1", ""])
async def test_a_check_of_another_boot_counts_for_nothing_and_is_done_again(site: Site, boot: str) -> None:
    await rebooted(site)
    await ends(site, boot=boot)
    await site.look(3)
    status = await site.status()

    assert (status.phase, status.checked_at, status.attempts[-1].check) == (NodePhase.CHECKING, None, 2)
    assert [pod.metadata.name.rpartition("-")[2] for pod in await pods(site)] == ["2"]


async def test_a_fault_after_the_beginning_of_the_check_wins_over_its_pass(site: Site) -> None:
    await rebooted(site)
    site.clock.advance(MINUTE)
    await site.report(a_finding(last_at=site.clock.now()))
    await ends(site)
    await site.look(3)
    status = await site.status()

    assert (status.attempts[0].outcome, status.checked_at) == (RungOutcome.NO_HELP, None)
    assert ANNOTATION_REPAIRED not in (await site.cluster.get(Node, "gpu-17")).metadata.annotations


HOSTILE = {
    "nothing": "",
    "no JSON": "pass",
    "an array": '["pass"]',
    "deep": "[" * 4000,
    "long": '{"result":"pass","passed":["' + "x" * LONGEST + '"]}',
    "numbers": '{"result":"pass","gpus":1e400,"expectedGpus":8}',
    "a large number": '{"result":"pass","gpus":99999999999999999999999,"expectedGpus":8}',
    "escapes": '{"result":"\\u001b[2J\\u202e","failed":{"\\u001b]0;x\\u0007":"\\u001b[31m"}}',
    "surrogates": '{"result":"\\ud800"}',
    "a boot that is long": '{"result":"pass","bootId":"' + "b" * 100 + '"}',
    "twice": '{"result":"fail","result":"pass"}',
}


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("code", [0, 3])
async def test_a_hostile_message_never_passes_and_is_recorded_safely(site: Site, what: str, code: int) -> None:
    await rebooted(site)
    await ends(site, HOSTILE[what], code=code)
    await site.look(3)
    status = await site.status()

    assert status.checked_at is None
    assert status.attempts[0].outcome in (RungOutcome.NO_HELP, RungOutcome.WITHDRAWN)
    assert all(text.isprintable() and len(text) <= 1024 for text in (status.message, status.attempts[0].message))


@pytest.mark.parametrize("end", [{"code": 3}, {"phase": "Failed"}])
async def test_a_pass_of_a_pod_that_failed_is_no_pass(site: Site, end: dict[str, Any]) -> None:
    await rebooted(site)
    await ends(site, **end)
    await site.look(3)

    assert (await site.status()).attempts[0].outcome is RungOutcome.NO_HELP


async def test_a_busy_node_is_checked_again_later_and_then_left_to_a_person(site: Site) -> None:
    await rebooted(site)
    for number in range(1, 4):
        assert (await site.status()).attempts[-1].check == number
        await ends(site, CheckSummary(result="busy", busy=["GPU 0 is in use"]), code=5)
        await site.look(2)
        await site.after(21 * MINUTE)
        await site.look(2)
    status = await site.status()

    assert status.phase is NodePhase.AWAITING_PERSON
    assert "GPU 0 is in use" in status.message
    assert await pods(site) == []


@pytest.mark.parametrize(
    ("labels", "offered", "said"),
    [
        ({"nvidia.com/gpu.product": "H100-MIG-1g.10gb"}, {"nvidia.com/gpu": "56"}, "partitioned"),
        ({}, {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "7"}, "partitioned"),
        ({"nvidia.com/gpu.replicas": "4"}, {"nvidia.com/gpu": "32"}, "shared"),
        ({}, {"cpu": "8"}, "offers no nvidia.com/gpu"),
        ({}, {"nvidia.com/gpu": "0"}, "nothing says how many GPUs"),
    ],
)
async def test_a_node_that_cannot_be_given_to_a_pod_whole_is_left_to_a_person(
    labels: dict[str, str], offered: dict[str, str], said: str
) -> None:
    site = a_site()
    await site.add(**labels)
    status = {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
    await site.cluster.patch(Node, "gpu-17", {"status": status}, subresource="status")
    await rebooted(site)
    for _ in range(3):
        await site.after(timedelta(days=1))
    record, made = await site.status(), await pods(site)
    site.cluster.close()

    assert (record.phase, made) == (NodePhase.CHECKING, [])
    assert said in record.message
    assert "`healthd repair gpu-17`" in record.message


async def test_without_the_right_to_make_the_pod_a_person_is_waited_for_and_no_higher_rung_follows(site: Site) -> None:
    site.link.forbidden.add("PodManifest")
    await rebooted(site)
    assert "may not create PodManifest" in (await site.status()).message
    for _ in range(4):
        await site.after(21 * MINUTE)
        await site.look(2)
    status = await site.status()

    assert (status.phase, await site.asked(POWER)) == (NodePhase.AWAITING_PERSON, [])
    assert "may not create PodManifest" in status.message


async def test_without_the_right_to_give_the_node_back_its_record_says_so(site: Site) -> None:
    await rebooted(site)
    await ends(site)
    site.link.forbidden.add("Node")
    await site.look(3)
    status = await site.status()

    assert (status.phase, status.returned_at) == (NodePhase.PROBATION, None)
    assert "may not" in status.message


async def test_a_person_who_takes_over_ends_the_check(site: Site) -> None:
    await rebooted(site)
    await site.note(ANNOTATION_REMEDIATION, "off")
    await site.look(3)
    left = await pods(site)

    assert await site.phase() is NodePhase.AWAITING_PERSON
    assert [pod for pod in left if pod.metadata.deletion_timestamp is None] == []


async def test_a_pod_of_a_node_of_the_same_name_before_counts_for_nothing(site: Site) -> None:
    await rebooted(site)
    (pod,) = await pods(site)
    stranger = [{"apiVersion": "v1", "kind": "Node", "name": "gpu-17", "uid": "another"}]
    await site.cluster.patch(Pod, pod.metadata.name, {"metadata": {"ownerReferences": stranger}}, namespace=NAMESPACE)
    await ends(site)
    await site.look(3)

    assert (await site.status()).checked_at is None


async def test_the_pod_of_a_check_whose_record_is_gone_is_deleted_by_the_next_leader(site: Site) -> None:
    await rebooted(site)
    await ends(site)
    await site.cluster.delete(NodeRemediation, "gpu-17", namespace=HOME)
    await site.gives_back()
    site.lead()
    await site.look(2)

    assert (await pods(site), await site.phase()) == ([], NodePhase.IN_SERVICE)


async def test_a_check_that_a_person_deletes_is_made_again(site: Site) -> None:
    await rebooted(site)
    (pod,) = await pods(site)
    await site.cluster.delete(Pod, pod.metadata.name, namespace=NAMESPACE, grace_seconds=0)
    await site.look(2)
    (again,) = await pods(site)

    assert (again.metadata.name, (await site.status()).attempts[-1].check) == (pod.metadata.name, 1)
    assert again.metadata.uid != pod.metadata.uid


async def test_a_check_that_is_turned_off_meanwhile_leaves_the_node_to_a_person() -> None:
    site = a_site()
    await joined(site)
    await rebooted(site)
    await ends(site)
    site.config = msgspec.structs.replace(
        site.config, remediation=msgspec.structs.replace(site.config.remediation, check_by_pod=False)
    )
    site.lead()
    await site.look(3)
    status = await site.status()
    site.cluster.close()

    assert (status.phase, status.checked_at) == (NodePhase.CHECKING, None)
    assert "healthd repair gpu-17" in status.message


async def test_by_default_no_pod_is_made() -> None:
    site = Site()
    await joined(site)
    await rebooted(site)
    made, status = await pods(site), await site.status()
    site.cluster.close()

    assert made == []
    assert "healthd does not check it by itself: check it" in status.message


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_checks_once_and_never_gives_back_unchecked(before: bool) -> None:
    for dies_at in range(1, 60):
        site = a_site()
        await joined(site)
        link = site.lead(dies_at=dies_at, before=before)
        made: set[str] = set()
        try:
            await to_the_end(site, made)
            is_over = True
        except Killed:
            is_over = False
            site.lead()
            await to_the_end(site, made)
        status, left, slots = await site.status(), await pods(site), await site.slots()
        site.cluster.close()

        assert status.phase is NodePhase.PROBATION, f"killed at write {dies_at}"
        assert (len(made), left, slots) == (1, [], {}), f"killed at write {dies_at}"
        if is_over:
            assert link.writes < dies_at
            return
    raise AssertionError("there is no end of writes")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
async def test_two_leaders_make_one_pod_and_give_back_once(seed: int) -> None:
    random, site = Random(seed), a_site()
    await joined(site)
    loops = [site.loop_over(Slow(site.cluster, random)) for _ in range(2)]
    await site.breaks()
    made: set[str] = set()
    for turn in range(12):
        await read_everything(site.cluster, site.state, ADAPTERS)
        await asyncio.gather(*(loop.look() for loop in loops))
        site.clock.advance(timedelta(seconds=10))
        standing = await pods(site)
        made |= {pod.metadata.uid for pod in standing}

        assert len(standing) <= 1, f"turn {turn}"
        if turn == 3:
            await site.does()
        if turn == 7:
            await ends(site)
    status, left = await site.status(), await pods(site)
    site.cluster.close()

    assert (status.phase, len(made), left) == (NodePhase.PROBATION, 1, [])
    assert status.attempts[-1].check == 1


async def to_the_end(site: Site, made: set[str]) -> None:
    """The site, the kubelet and the agent do their part, as far as that is not done yet."""
    if await site.phase() is NodePhase.IN_SERVICE and not (await site.cluster.get(Node, "gpu-17")).spec.unschedulable:
        await site.breaks()
    await site.look(3)
    await site.does()
    await site.look(3)
    running = [each for each in await pods(site) if each.status.phase == "Pending"]
    made |= {each.metadata.name for each in await pods(site)}
    if running:
        await ends(site)
    await site.look(4)
    if (await site.cluster.get(Node, "gpu-17")).spec.unschedulable:
        assert (await site.status()).checked_at is not None
        await site.gives_back()
    await site.look(3)
