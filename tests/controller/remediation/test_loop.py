"""A node goes through its life by what the site has: asked once, proven, and never against a person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from healthd.cluster.port import NotFound
from healthd.controller.remediation.act import FRESH
from healthd.controller.remediation.discovery import type_of
from healthd.controller.remediation.loop import EVERY
from healthd.core.api import Node, NodeHealth, NodeRemediation, ObjectMeta, Pod
from healthd.core.api.names import ANNOTATION_REMEDIATION, ANNOTATION_RETRY
from healthd.core.api.remediations import NodePhase, Rung, RungOutcome
from tests.builders import a_recovery
from tests.controller.remediation.site import HOME, MINUTE, POWER, REBOOT, Killed, Site
from tests.core.remediation.situations import a_finding


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    await site.add()
    yield site
    site.cluster.close()


async def rebooted(site: Site) -> None:
    """The node broke, its reboot was asked for, and done."""
    await site.breaks()
    await site.look(2)
    await site.does()
    await site.look(2)


async def test_a_site_without_bad_nodes_is_asked_for_nothing(site: Site) -> None:
    await site.look(3)

    assert site.link.writes == 0
    assert await site.phase() is NodePhase.IN_SERVICE


async def test_while_a_gang_is_restarted_a_repair_begins_some_seconds_later(site: Site) -> None:
    """The restart of the gang comes first, also at the API server."""
    await site.cluster.create(a_recovery())
    await site.breaks()
    await site.look()
    assert site.link.writes == 0

    await site.after(EVERY)
    assert len(await site.asked()) == 1


async def test_a_bad_node_is_rebooted_by_the_hand_of_the_site(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    (asked,) = await site.asked()
    status = await site.status()

    assert status.phase is NodePhase.REMEDIATING
    assert asked == f"healthd-gpu-17-{status.attempts[-1].number}"
    assert status.attempts[-1].written_at is not None
    assert await site.slots() == {"healthd-remediation-cluster-0": "gpu-17"}


async def test_a_new_boot_is_proof_and_no_check_is_claimed(site: Site) -> None:
    await rebooted(site)
    status = await site.status()

    assert status.phase is NodePhase.CHECKING
    assert status.checked_at is None
    assert "it booted since (boot-after-" in status.attempts[-1].proof
    assert "check it, then say `healthd repair gpu-17`" in status.message
    assert (await site.cluster.get(Node, "gpu-17")).spec.unschedulable


async def test_a_node_that_is_not_checked_waits_for_as_long_as_that_takes(site: Site) -> None:
    await rebooted(site)
    for _ in range(20):
        await site.after(timedelta(days=1))

    assert await site.phase() is NodePhase.CHECKING
    assert await site.asked(POWER) == []


async def test_the_persons_repair_ends_it_and_frees_the_slot(site: Site) -> None:
    await rebooted(site)
    await site.gives_back()
    await site.look(2)

    assert await site.phase() is NodePhase.IN_SERVICE
    assert await site.slots() == {}
    assert await site.asked() == []
    writes = site.link.writes
    await site.look(5)
    assert site.link.writes == writes


async def test_a_fault_that_comes_again_after_the_rung_leads_to_the_next(site: Site) -> None:
    await rebooted(site)
    site.clock.advance(MINUTE)
    await site.report(a_finding(last_at=site.clock.now()))
    await site.look(3)
    status = await site.status()

    assert [each.outcome for each in status.attempts] == [RungOutcome.NO_HELP, None]
    assert status.attempts[-1].rung is Rung.POWER_CYCLE
    assert (await site.asked(), len(await site.asked(POWER))) == ([], 1)


async def test_a_hand_that_fails_is_followed_by_the_next_rung(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    await site.does(phase="Failed", reboots=False)
    await site.look(3)

    assert [each.outcome for each in (await site.status()).attempts] == [RungOutcome.FAILED, None]
    assert await site.asked() == []
    assert len(await site.asked(POWER)) == 1


async def test_a_hand_that_lies_is_not_believed(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    await site.does(reboots=False)
    await site.look(2)

    assert await site.phase() is NodePhase.REMEDIATING
    await site.after(timedelta(minutes=31))
    await site.look(2)
    assert (await site.status()).attempts[0].outcome is RungOutcome.TIMED_OUT


async def test_after_the_last_rung_a_person_is_waited_for(site: Site) -> None:
    await site.breaks()
    for kind in (REBOOT, POWER):
        await site.look(3)
        await site.does(kind, phase="Failed", reboots=False)
    await site.look(3)
    status = await site.status()

    assert status.phase is NodePhase.AWAITING_PERSON
    assert "power_cycle did not help" in status.message
    assert (await site.asked(), await site.asked(POWER), await site.slots()) == ([], [], {})


async def test_what_runs_on_the_node_is_waited_for(site: Site) -> None:
    await site.runs("rank-0")
    await site.breaks()
    await site.look(3)

    assert await site.asked() == []
    assert "default/rank-0" in (await site.status()).message
    await site.ends("rank-0")
    await site.look(2)
    assert len(await site.asked()) == 1


async def test_a_pod_that_comes_right_before_the_request_stops_it(site: Site) -> None:
    await site.breaks()
    came: list[str] = []

    async def comes() -> None:
        if not came and await site.phase() is NodePhase.DRAINED and await site.slots():
            came.append("rank-0")
            await site.runs("rank-0")

    site.link.before_write = comes
    await site.look(4)

    assert came
    assert await site.asked() == []
    assert await site.phase() is NodePhase.QUARANTINED


class Stopped:
    """A cluster as a controller reaches it whose machine is suspended after each look at the pods of a node."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site.cluster, name)

    async def list(self, kind: type[Any], **options: Any) -> Any:
        """The objects as they were before."""
        found = await self._site.cluster.list(kind, **options)
        if kind is Pod:
            self._site.clock.advance(2 * FRESH)
        return found


async def test_a_controller_that_was_suspended_after_its_last_look_asks_for_nothing(site: Site) -> None:
    await site.breaks()
    site.loop = site.loop_over(Stopped(site))
    await site.look(6)

    assert await site.phase() is NodePhase.REMEDIATING
    assert await site.asked() == []
    site.lead()
    await site.look(2)
    assert len(await site.asked()) == 1


async def test_the_limit_holds_for_all_nodes_together(site: Site) -> None:
    await site.add("gpu-18")
    await site.breaks()
    await site.breaks("gpu-18")
    await site.look(4)

    assert len(await site.asked()) == 1
    waiting = await site.status("gpu-18")
    assert waiting.phase is NodePhase.DRAINED
    assert waiting.message == "all 1 slots of healthd-remediation-cluster are taken"
    await site.does()
    await site.look(2)
    await site.gives_back()
    await site.look(6)
    assert await site.phase("gpu-18") is NodePhase.REMEDIATING


@pytest.mark.parametrize("when", ["before", "while"])
async def test_a_person_who_says_off_is_obeyed(site: Site, when: str) -> None:
    await site.breaks()
    if when == "while":
        await site.look(2)
    await site.note(ANNOTATION_REMEDIATION, "off")
    await site.look(3)

    assert await site.phase() is (NodePhase.AWAITING_PERSON if when == "while" else NodePhase.IN_SERVICE)
    assert (await site.asked(), await site.slots()) == ([], {})


async def test_a_person_who_uncordons_the_node_is_obeyed(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    await site.cluster.patch(Node, "gpu-17", {"spec": {"unschedulable": None}})
    await site.look(2)

    assert await site.phase() is NodePhase.AWAITING_PERSON
    assert await site.asked() == []


async def test_a_person_may_ask_for_a_further_try(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    await site.note(ANNOTATION_REMEDIATION, "off")
    await site.look(2)
    await site.note(ANNOTATION_REMEDIATION, None)
    await site.look(2)
    assert await site.asked() == []
    site.clock.advance(MINUTE)
    await site.note(ANNOTATION_RETRY, site.clock.now().isoformat())
    await site.look(3)

    assert len(await site.asked()) == 1


async def test_another_remediator_is_yielded_to(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    await site.note("weave.works/kured-reboot-in-progress", "true")
    await site.look(2)
    status = await site.status()

    assert (status.phase, await site.asked()) == (NodePhase.QUARANTINED, [])
    assert "kured" in status.message


async def test_a_hand_that_may_not_be_asked_leads_to_a_person_and_to_no_higher_rung(site: Site) -> None:
    site.link.forbidden = {"Reboot"}
    await site.breaks()
    await site.look(3)

    assert "may not create Reboot" in (await site.status()).message
    await site.after(timedelta(minutes=31))
    await site.look(3)
    assert await site.phase() is NodePhase.AWAITING_PERSON
    assert await site.asked(POWER) == []


async def test_an_object_of_the_same_name_of_somebody_else_is_no_request() -> None:
    site = Site("medik8s-self-node-remediation")
    await site.add()
    theirs = type_of("self-node-remediation.medik8s.io/v1alpha1", "SelfNodeRemediation")
    await site.cluster.create(theirs(metadata=ObjectMeta(name="gpu-17", namespace="openshift-workload-availability")))
    await site.breaks()
    await site.look(4)

    assert await site.phase() is NodePhase.REMEDIATING
    assert "not of healthd" in (await site.status()).message
    await site.note(ANNOTATION_REMEDIATION, "off")
    await site.look(2)
    assert len((await site.cluster.list(theirs)).items) == 1
    site.cluster.close()


async def test_a_node_that_is_deleted_meanwhile_holds_nothing(site: Site) -> None:
    await site.breaks()
    await site.look(2)
    await site.cluster.delete(Node, "gpu-17")
    await site.look(4)
    await site.after(timedelta(minutes=31))
    await site.look(3)

    assert (await site.asked(), await site.slots()) == ([], {})
    assert (await site.status()).attempts[0].outcome is RungOutcome.TIMED_OUT


async def test_a_record_that_a_person_deletes_begins_anew(site: Site) -> None:
    await rebooted(site)
    await site.cluster.delete(NodeRemediation, "gpu-17", namespace=HOME)
    await site.look(4)

    with pytest.raises(NotFound):
        await site.cluster.get(REBOOT, "healthd-gpu-17-1")
    assert await site.phase() in (NodePhase.REMEDIATING, NodePhase.CHECKING)


async def test_a_record_that_cannot_be_read_holds_up_its_node_alone(site: Site) -> None:
    await site.add("gpu-18")
    record = ObjectMeta(name="gpu-17", namespace=HOME)
    await site.cluster.create(NodeRemediation(metadata=record))
    nonsense = {"status": {"phase": "Nonsense", "relapses": -3}}
    anything = type_of("healthd.dev/v1alpha1", "NodeRemediation")
    await site.cluster.patch(anything, "gpu-17", nonsense, namespace=HOME, subresource="status")
    await site.breaks()
    await site.breaks("gpu-18")
    await site.look(3)

    assert [name.rpartition("-")[0] for name in await site.asked()] == ["healthd-gpu-18"]


async def test_a_node_of_which_its_agent_says_nothing_is_only_checked_after_a_while(site: Site) -> None:
    await site.breaks()
    await site.cluster.delete(NodeHealth, "gpu-17")
    await site.look(3)
    assert await site.phase() is NodePhase.DRAINED
    await site.after(MINUTE)

    assert await site.asked() == []
    assert "no finding stands any more" in (await site.status()).attempts[-1].why


async def test_turned_off_it_begins_nothing_and_ends_what_goes_on() -> None:
    site = Site(at_once=0)
    await site.add()
    await site.breaks()
    await site.look(3)

    assert (await site.phase(), site.link.writes) == (NodePhase.IN_SERVICE, 0)
    site.cluster.close()


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_is_continued_by_the_next(before: bool) -> None:
    for dies_at in range(1, 40):
        site = Site()
        await site.add()
        link = site.lead(dies_at=dies_at, before=before)
        is_over = False
        try:
            await rebooted(site)
            await site.gives_back()
            await site.look(3)
            is_over = True
        except Killed:
            site.lead()
            await continued(site)
        status = await site.status()
        site.cluster.close()

        assert status.phase is NodePhase.IN_SERVICE, f"killed at write {dies_at}"
        assert len({each.number for each in status.attempts}) == 1, f"killed at write {dies_at}"
        if is_over:
            assert link.writes < dies_at
            return
    raise AssertionError("there is no end of writes")


async def continued(site: Site) -> None:
    """The next controller goes on to the end; the site and the agent do their part."""
    await site.look(3)
    assert len(await site.asked()) <= 1
    await site.does()
    await site.look(3)
    if (await site.cluster.get(Node, "gpu-17")).spec.unschedulable:
        await site.gives_back()
    await site.look(3)
    assert (await site.asked(), await site.slots()) == ([], {})
