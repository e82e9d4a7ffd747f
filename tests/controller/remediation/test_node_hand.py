"""healthd's own hand: its pod comes after the labels that let it in, and both go when the rung is done or given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from healthd.core.api import Namespace, Node, ObjectMeta, Pod
from healthd.core.api.model import RepairAction
from healthd.core.api.names import ANNOTATION_REMEDIATION, ANNOTATION_REQUEST, LABEL_NODE_HAND
from healthd.core.api.remediations import NodePhase, Rung, RungOutcome
from tests.controller.remediation.site import MINUTE, Killed, Site
from tests.core.remediation.situations import a_finding

NAMESPACE = "healthd-node-hands"
PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
RESET, REBOOT, POWER = "healthd-gpu-reset", "healthd-reboot", "acme-power"
HELD = {LABEL_NODE_HAND: "gpu-reset.boot-1", PLUGIN: "paused-for-gpu-reset"}
FREE = {PLUGIN: "true"}


class Hands(Site):
    """A site with the component, whose node breaks."""

    async def begins(self, action: RepairAction = RepairAction.RESET_GPU) -> None:
        """The component is there, and the node breaks."""
        await self.cluster.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        await self.add(**FREE)
        await self.breaks(action=action)

    async def pods(self) -> list[Pod]:
        """The pods of hands."""
        return (await self.cluster.list(Pod, namespace=NAMESPACE)).items

    async def labels(self) -> dict[str, str]:
        """Of the node, those of a hand."""
        labels = (await self.cluster.get(Node, "gpu-17")).metadata.labels
        return {key: value for key, value in labels.items() if key in HELD}

    async def ends_with(self, phase: str, code: int | None = None, why: str = "", **more: Any) -> None:
        """The kubelet says how the pod ended."""
        (pod,) = await self.pods()
        state = {"terminated": {"exitCode": code, "message": why}}
        ended = [{"name": "hand", "state": state}] if code is not None else []
        status = {"status": {"phase": phase, "containerStatuses": ended, **more}}
        await self.cluster.patch(Pod, pod.metadata.name, status, namespace=NAMESPACE, subresource="status")


@pytest.fixture
async def site() -> AsyncIterator[Hands]:
    made = Hands(RESET, REBOOT, POWER)
    yield made
    made.cluster.close()


async def test_the_labels_come_first_and_the_pod_follows(site: Hands) -> None:
    await site.begins()
    await site.look()

    assert (await site.labels(), await site.pods()) == (HELD, [])
    assert (await site.status()).message == "healthd-gpu-reset is asked once the Node shows its labels"
    await site.look(2)
    (pod,) = await site.pods()
    attempt = (await site.status()).attempts[-1]
    assert pod.spec.node_name == "gpu-17"
    assert pod.metadata.annotations[ANNOTATION_REQUEST] == str(attempt.number)
    assert attempt.written_at is not None


async def test_after_a_reset_the_labels_go_before_the_check_and_leave_the_site_as_it_was(site: Hands) -> None:
    await site.begins()
    await site.look(3)
    await site.ends_with("Succeeded", 0)
    await site.look(2)

    status = await site.status()
    assert (status.phase, status.attempts[-1].proof) == (NodePhase.CHECKING, "healthd-gpu-reset says so")
    assert (await site.labels(), await site.pods()) == (FREE, [])
    assert ANNOTATION_REQUEST not in (await site.cluster.get(Node, "gpu-17")).metadata.annotations


async def test_while_its_pod_is_at_work_the_labels_stay_although_the_agent_saw_a_new_boot(site: Hands) -> None:
    await site.begins()
    await site.look(3)
    await site.boot("gpu-17", "boot-2")
    await site.look(2)

    assert (await site.phase(), await site.labels()) == (NodePhase.CHECKING, HELD)
    await site.ends_with("Failed")
    await site.look(2)
    assert (await site.labels(), await site.pods()) == (FREE, [])


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ({"code": 3, "why": "the GPUs are used by python3 (process 77)"}, "the GPUs are used by python3 (process 77)"),
        ({"code": 4, "why": "nvidia-smi failed"}, "nvidia-smi failed"),
        ({"message": "Pod was active on the node longer than the deadline"}, "longer than the deadline"),
        ({"reason": "NodeAffinity"}, "NodeAffinity"),
        ({}, "status.phase is Failed"),
    ],
)
async def test_a_reset_that_was_refused_or_failed_leads_to_the_next_rung_and_says_why(
    site: Hands, end: dict[str, Any], says: str
) -> None:
    await site.begins()
    await site.look(3)
    await site.ends_with("Failed", **end)
    await site.look(2)

    first, second = (await site.status()).attempts
    assert (first.outcome, second.rung) == (RungOutcome.FAILED, Rung.REBOOT)
    assert says in first.message
    await site.look(3)
    (pod,) = await site.pods()
    assert pod.metadata.name.startswith("reboot-")
    assert await site.labels() == {LABEL_NODE_HAND: "reboot.boot-1", PLUGIN: "true"}


async def test_a_reset_that_did_not_help_is_followed_by_a_reboot(site: Hands) -> None:
    await site.begins()
    await site.look(3)
    await site.ends_with("Succeeded", 0)
    await site.look(2)
    site.clock.advance(MINUTE)
    now = site.clock.now()
    await site.report(a_finding(action=RepairAction.RESET_GPU, last_at=now, raised_at=now))
    await site.look(2)

    first, second = (await site.status()).attempts
    assert (first.outcome, second.rung) == (RungOutcome.NO_HELP, Rung.REBOOT)


async def test_a_pod_that_failed_because_its_node_went_down_for_the_reboot_has_not_failed(site: Hands) -> None:
    await site.begins(RepairAction.REBOOT_NODE)
    await site.look(3)
    await site.ends_with("Failed", 137, "", reason="Terminated", message="imminent node shutdown")
    await site.look(3)

    assert [each.outcome for each in (await site.status()).attempts] == [None]
    await site.boot("gpu-17", "boot-2")
    await site.look()
    status = await site.status()
    assert (status.phase, status.attempts[-1].proof) == (NodePhase.CHECKING, "it booted since (boot-2)")


async def test_a_reboot_that_was_refused_leads_to_the_next_rung(site: Hands) -> None:
    await site.begins(RepairAction.REBOOT_NODE)
    await site.look(3)
    await site.ends_with("Failed", 3, "the GPUs are used by slurmstepd (process 9)")
    await site.look(2)

    first, second = (await site.status()).attempts
    assert (first.outcome, second.rung) == (RungOutcome.FAILED, Rung.POWER_CYCLE)
    assert "slurmstepd (process 9)" in first.message
    assert (await site.labels(), await site.pods()) == (FREE, [])


@pytest.mark.parametrize("phase", ["Succeeded", "Pending", "Running"])
async def test_a_reboot_of_which_no_new_boot_is_seen_is_too_late(site: Hands, phase: str) -> None:
    await site.begins(RepairAction.REBOOT_NODE)
    await site.look(3)
    await site.ends_with(phase)
    await site.look()
    await site.after(31 * MINUTE)

    assert (await site.status()).attempts[0].outcome is RungOutcome.TIMED_OUT
    assert (await site.labels(), await site.pods()) == (FREE, [])


@pytest.mark.parametrize("looks", [1, 3])
async def test_a_person_who_says_off_takes_pod_and_labels_back(site: Hands, looks: int) -> None:
    await site.begins()
    await site.look(looks)
    await site.note(ANNOTATION_REMEDIATION, "off")
    await site.look(2)

    assert (await site.phase(), await site.labels(), await site.pods()) == (NodePhase.AWAITING_PERSON, FREE, [])


async def test_a_node_that_is_deleted_leaves_no_pod(site: Hands) -> None:
    await site.begins()
    await site.look(3)
    await site.cluster.delete(Node, "gpu-17")
    await site.look(2)
    await site.after(21 * MINUTE)

    assert await site.pods() == []


async def test_a_pod_that_was_deleted_is_not_made_again(site: Hands) -> None:
    await site.begins()
    await site.look(3)
    (pod,) = await site.pods()
    await site.cluster.delete(Pod, pod.metadata.name, namespace=NAMESPACE, grace_seconds=0)
    await site.look(3)

    assert await site.pods() == []
    await site.after(21 * MINUTE)
    assert (await site.status()).attempts[0].outcome is RungOutcome.TIMED_OUT


async def test_without_the_component_there_is_no_such_hand() -> None:
    site = Hands(RESET, REBOOT, POWER)
    await site.add(**FREE)
    await site.breaks(action=RepairAction.RESET_GPU)
    await site.look(3)

    assert [each.hand for each in (await site.status()).attempts] == [POWER]
    assert await site.labels() == FREE
    site.cluster.close()


async def test_a_pod_that_may_not_be_made_leads_to_a_person_and_leaves_no_label(site: Hands) -> None:
    await site.begins()
    site.link.forbidden.add("Pod")
    await site.look(4)
    assert "may not create Pod" in (await site.status()).message
    assert await site.labels() == HELD
    await site.after(21 * MINUTE)
    await site.look()

    status = await site.status()
    assert (status.phase, status.attempts[-1].outcome) == (NodePhase.AWAITING_PERSON, RungOutcome.WITHDRAWN)
    assert await site.labels() == FREE


async def test_a_label_that_the_site_has_set_otherwise_is_left_alone(site: Hands) -> None:
    await site.begins()
    patch = {"metadata": {"labels": {PLUGIN: "false"}}}
    await site.cluster.patch(Node, "gpu-17", patch)
    await site.look(3)
    assert (await site.labels())[PLUGIN] == "false"
    await site.ends_with("Succeeded", 0)
    await site.look(2)

    assert await site.labels() == {PLUGIN: "false"}


async def looked(site: Site) -> None:
    """The controller looks. Where that kills it, another one leads from then on."""
    try:
        await site.look()
    except Killed:
        site.lead()


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("action", [RepairAction.RESET_GPU, RepairAction.REBOOT_NODE])
async def test_a_controller_killed_at_any_write_asks_once_and_leaves_nothing(
    action: RepairAction, before: bool
) -> None:
    made: list[set[str]] = []
    for dies_at in range(1, 30):
        site = Hands(RESET, REBOOT, POWER)
        await site.begins(action)
        link = site.lead(dies_at=dies_at, before=before)
        names: set[str] = set()
        for _ in range(12):
            await looked(site)
            pods = await site.pods()
            names |= {pod.metadata.name for pod in pods}
            if pods and not pods[0].status.phase:
                await site.ends_with("Succeeded", 0)
                if action is RepairAction.REBOOT_NODE:
                    await site.boot("gpu-17", "boot-2")
        made.append(names)
        await site.gives_back()
        for _ in range(4):
            await looked(site)
        assert (await site.labels(), await site.pods()) == (FREE, []), dies_at
        site.cluster.close()
        if link.writes < dies_at:
            break

    assert len(made) > 8
    assert {len(names) for names in made} == {1}
