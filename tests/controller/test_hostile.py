"""What a tenant wrote ends no loop: its own gang is left alone, with a reason, and those of others are recovered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import Job, ObjectMeta, Occurrence, Pod, PodGang, PodGangSpec, Recovery
from healthd.core.api.model import Hold, Phase
from tests.builders import a_job, a_pod, a_recovery
from tests.controller.replicas import Replicas
from tests.gangs.builders import a_jobset, a_part, a_statefulset

MANY = "9" * 5000
ENABLED = {"healthd.dev/restart": "enabled"}


@pytest.fixture
async def scenario() -> AsyncIterator[Replicas]:
    scenario = Replicas()
    await scenario.set_up()
    yield scenario
    await scenario.close()


def plain_pod(**notes: str) -> Pod:
    """One of a gang that healthd makes the root of."""
    said = {f"healthd.dev/{key.replace('_', '-')}": text for key, text in notes.items()}
    return a_pod("lone", labels={"healthd.dev/gang": "lone"}, annotations={**ENABLED, **said})


def a_podgang(name: str = "evil", **spec: Any) -> PodGang:
    return PodGang(metadata=ObjectMeta(name=name, namespace="default", annotations=ENABLED), spec=PodGangSpec(**spec))


STOPPED = {**ENABLED, "healthd.dev/stopped-by": "evil-1"}
HOSTILE: dict[str, Any] = {
    "a Job with a number of 5,000 digits": a_job("evil", annotations={**ENABLED, "healthd.dev/max-no-advance": MANY}),
    "a plain pod with such a number": plain_pod(max_no_advance=MANY),
    "a plain pod with such an attempt": plain_pod(attempt=MANY),
    "a StatefulSet of two billion": a_statefulset(
        "evil", replicas=0, annotations={**STOPPED, "healthd.dev/replicas": "2000000000"}
    ),
    "a Job of two billion": a_job("evil", ranks=2**31 - 1, annotations=ENABLED),
    "a JobSet of two billion times two billion": a_jobset("evil", parts=[a_part(replicas=2**31 - 1, pods=2**31 - 1)]),
    "a PodGang of two billion": a_podgang(size=2**31 - 1),
    "an attempt of 400 digits": a_job("evil", annotations={**ENABLED, "healthd.dev/attempt": "9" * 400}),
    "a step of 400 digits": a_job(
        "evil", annotations={**ENABLED, "healthd.dev/progress": '{"step":' + "9" * 400 + "}"}
    ),
    "nested JSON": a_job("evil", annotations={**ENABLED, "healthd.dev/placement": '{"a":' * 20_000}),
    "a recovery of a gang that is nowhere": a_recovery("evil-1"),
}


@pytest.mark.parametrize("which", HOSTILE)
async def test_the_controller_lives_and_recovers_others(scenario: Replicas, which: str) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.cluster.create(HOSTILE[which])
    await scenario.clock.run_for(timedelta(seconds=30))
    await scenario.quarantine("node-1")
    await scenario.until(scenario.is_stopped)

    assert not scenario.has_ended("a")


async def test_an_invalid_gang_gets_one_event(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.cluster.create(a_job("evil", annotations={**ENABLED, "healthd.dev/min-nodes": "\x1b[2J" + MANY}))
    await scenario.clock.run_for(timedelta(minutes=5))

    reported = [event for event in (await scenario.cluster.list(Occurrence)).items if event.reason == "GangInvalid"]
    (event,) = reported
    assert (event.type, event.involved_object.kind, event.involved_object.name) == ("Warning", "Job", "evil")
    assert event.message.startswith("healthd does nothing to this gang: healthd.dev/min-nodes: '\\x1b[2J999")


async def test_a_gang_that_its_pods_make_invalid_is_counted_until_they_are_corrected(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    for name in ("lone", "other"):
        await scenario.cluster.create(a_pod(name, gang="lone", node="node-1", annotations=ENABLED))
    await scenario.clock.run_for(timedelta(minutes=1))
    for label, count in ((None, 1), ("lone", 0)):
        labels = {"metadata": {"labels": {"healthd.dev/gang": label}}}
        await scenario.cluster.patch(Pod, "other", labels, namespace="default")
        await scenario.clock.run_for(timedelta(minutes=1))

        assert scenario.gauge("a", "healthd_gangs_invalid") == count


async def test_a_gang_that_lost_the_number_of_its_attempt_is_reported_until_it_has_it_again(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    number = {"metadata": {"annotations": {"healthd.dev/attempt": "3"}}}
    for pod in (await scenario.cluster.list(Pod)).items:
        await scenario.cluster.patch(Pod, pod.metadata.name, number, namespace="default")
    await scenario.clock.run_for(timedelta(minutes=1))

    (event,) = [each for each in (await scenario.cluster.list(Occurrence)).items if each.reason == "GangInvalid"]
    assert (event.type, event.involved_object.name) == ("Warning", "train")
    assert "it says 0, and the pods are of attempt 3: somebody changed it, so write 3 there again" in event.message
    assert scenario.gauge("a", "healthd_gangs_invalid") == 1

    await scenario.cluster.patch(Job, "train", number, namespace="default")
    await scenario.clock.run_for(timedelta(minutes=1))
    assert scenario.gauge("a", "healthd_gangs_invalid") == 0


async def test_a_gang_whose_recovery_is_gone_gets_one_event_that_it_stays_stopped(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    stopped = a_job("left", annotations={**ENABLED, "healthd.dev/stopped-by": "left-1"}, suspend=True)
    await scenario.cluster.create(stopped)
    await scenario.clock.run_for(timedelta(minutes=5))

    (event,) = [each for each in (await scenario.cluster.list(Occurrence)).items if each.reason == "GangLeftStopped"]
    assert (event.type, event.involved_object.name) == ("Warning", "left")
    assert "recovery left-1 stopped it and is gone" in event.message


async def test_a_recovery_of_an_unknown_kind_of_gang_gets_one_event_and_its_gang_is_recovered(
    scenario: Replicas,
) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    (train,) = (await scenario.cluster.list(Job)).items
    made = a_recovery("by-hand", gang=train)
    stranger = msgspec.structs.replace(made.spec.gang, kind="Jobb")
    await scenario.cluster.create(msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, gang=stranger)))
    await scenario.clock.run_for(timedelta(minutes=1))
    (event,) = [each for each in (await scenario.cluster.list(Occurrence)).items if each.reason == "GangInvalid"]
    await scenario.quarantine("node-1")
    await scenario.until(scenario.is_stopped)

    assert (event.type, event.involved_object.name) == ("Warning", "by-hand")
    assert "knows no gangs of the kind Jobb, only " in event.message


async def test_a_gang_whose_recovery_cannot_be_made_as_its_name_is_taken_is_reported_and_recovered_once_it_is_free(
    scenario: Replicas,
) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    scenario.links["a"].taken.add(Recovery)
    await scenario.quarantine("node-1")
    await scenario.clock.run_for(timedelta(minutes=1))

    stuck = [each for each in (await scenario.cluster.list(Occurrence)).items if each.reason == "GangStuck"]
    assert "delete it, or the gang is never recovered" in stuck[0].message

    scenario.links["a"].taken.clear()
    await scenario.until(scenario.is_stopped)


async def test_an_invalid_gang_is_not_stopped_until_it_is_corrected(scenario: Replicas) -> None:
    await scenario.annotate("train", {"healthd.dev/max-no-advance": "three"})
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.quarantine("node-1")
    await scenario.clock.run_for(timedelta(minutes=2))

    assert await scenario.recoveries() == []

    await scenario.annotate("train", {"healthd.dev/max-no-advance": "3"})
    await scenario.until(scenario.is_stopped)


async def test_a_recovery_is_held_while_its_gang_cannot_be_read_and_goes_on_after(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.quarantine("node-1")
    await scenario.until(scenario.is_stopped)
    await scenario.annotate("train", {"healthd.dev/fence-timeout": "soon"})

    async def is_held() -> bool:
        return [each.status.phase for each in await scenario.recoveries()] == [Phase.HELD]

    await scenario.until(is_held)
    (held,) = await scenario.recoveries()
    assert held.status.held_in is Phase.STOPPING
    assert "healthd.dev/fence-timeout: 'soon' is not a duration" in held.status.message
    await scenario.clock.run_for(timedelta(seconds=2))
    assert scenario.held_for("a", Hold.INVALID) == 1

    await scenario.annotate("train", {"healthd.dev/fence-timeout": None})

    async def goes_on() -> bool:
        return [each.status.phase for each in await scenario.recoveries()] == [Phase.STOPPING]

    await scenario.until(goes_on)
