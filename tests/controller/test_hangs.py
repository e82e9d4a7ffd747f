"""Replicas of the controller see that a gang hangs, from watches alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from healthd.controller.hangs import TRY_AGAIN
from healthd.core.api import Job, NodeHealth, NodeHealthStatus, Occurrence, Pod
from healthd.core.api.health import MemberState, PodRhythm
from healthd.core.api.incidents import Severity
from healthd.core.config import AlertsPolicy, Config, HangPolicy
from healthd.core.hang.silence import Silence
from tests.builders import a_nodehealth, a_sink_policy
from tests.controller.alerts.sinks import FakeSink
from tests.controller.replicas import Replicas

pytestmark = pytest.mark.slow

SILENT, WORKING = MemberState.SILENT, MemberState.WORKING


class HangingGang(Replicas):
    """The gang `train`, whose agents report what its ranks do."""

    async def set_up(self) -> None:
        await super().set_up()
        for rank in range(2):
            await self.cluster.create(a_nodehealth(f"node-{rank}", status=NodeHealthStatus(seen_at=self.clock.now())))

    async def report(self, state: MemberState) -> None:
        """All ranks are *state*, for 15 seconds where they do not work."""
        now = self.clock.now()
        for rank in range(2):
            pod = await self.cluster.get(Pod, f"train-{rank}", "default")
            since = None if state is WORKING else now - timedelta(seconds=15)
            rhythm = PodRhythm(uid=pod.metadata.uid, state=state, since=since, period=2.0, allowed=12.0)
            status = {"rhythms": [msgspec.to_builtins(rhythm)], "seenAt": now.isoformat()}
            await self.cluster.patch(NodeHealth, f"node-{rank}", {"status": status}, subresource="status")

    async def renew(self) -> None:
        """The agents report the same again."""
        for rank in range(2):
            status = {"seenAt": self.clock.now().isoformat()}
            await self.cluster.patch(NodeHealth, f"node-{rank}", {"status": status}, subresource="status")

    async def lead(self, name: str, **options: object) -> None:
        await self.start(name, **options)  # type: ignore[arg-type]
        await self.until(lambda: self.is_led_by(name))

    async def hang(self) -> None:
        """All ranks fall silent, and it is seen."""
        await self.clock.run_for(timedelta(minutes=1))
        await self.report(SILENT)
        await self.clock.run_for(timedelta(seconds=30))

    async def reported(self, name: str = "train") -> list[str]:
        """The reasons of the Events of the gang that are about hangs, sorted."""
        found = (await self.cluster.list(Occurrence)).items
        return sorted(e.reason for e in found if e.involved_object.name == name and e.reason.startswith("GangHang"))

    async def silence(self) -> Silence | None:
        text = (await self.cluster.get(Job, "train", "default")).metadata.annotations.get("healthd.dev/silence")
        return msgspec.json.decode(text, type=Silence) if text else None


@pytest.fixture
async def scenario() -> AsyncIterator[HangingGang]:
    scenario = HangingGang()
    await scenario.set_up()
    yield scenario
    await scenario.close()


async def test_a_new_leader_does_not_tell_a_hang_again_and_tells_its_end(scenario: HangingGang) -> None:
    await scenario.lead("a")
    await scenario.hang()
    assert await scenario.reported() == ["GangHangs"]

    await scenario.start("b")
    await scenario.stop("a")
    await scenario.until(lambda: scenario.is_led_by("b"))
    await scenario.clock.run_for(timedelta(seconds=30))
    assert await scenario.reported() == ["GangHangs"]

    await scenario.report(WORKING)
    await scenario.clock.run_for(timedelta(seconds=30))
    assert await scenario.reported() == ["GangHangOver", "GangHangs"]


async def test_the_person_on_call_gets_one_message_under_one_key_until_it_is_over(scenario: HangingGang) -> None:
    sink = FakeSink()
    alerts = AlertsPolicy(sinks=(a_sink_policy(sink.name),))
    await scenario.lead("a", sinks=[sink], config=Config(alerts=alerts, hang=HangPolicy(floor=timedelta(minutes=1))))
    await scenario.hang()
    await scenario.clock.run_for(timedelta(minutes=1))
    await scenario.report(WORKING)
    await scenario.clock.run_for(timedelta(minutes=1))

    assert len({each.key for each in sink.sent}) == 1
    assert [(each.severity, each.resolved is not None) for each in sink.sent] == [
        (Severity.NOTICE, False),
        (Severity.PAGE, False),
        (Severity.PAGE, True),
    ]


async def test_a_refused_record_is_reported_once_all_the_same(scenario: HangingGang) -> None:
    await scenario.lead("a")
    scenario.links["a"].refused.add("train")
    await scenario.hang()
    await scenario.clock.run_for(timedelta(seconds=30))

    assert await scenario.silence() is None
    assert await scenario.reported() == ["GangHangs"]

    scenario.links["a"].refused.clear()
    await scenario.renew()
    await scenario.clock.run_for(TRY_AGAIN)

    assert await scenario.silence() is not None, "alerts come from it"
    assert await scenario.reported() == ["GangHangs"]


async def test_an_unreadable_annotation_makes_the_gang_invalid_and_nothing_is_recorded(scenario: HangingGang) -> None:
    await scenario.annotate("train", {"healthd.dev/hang": "\x1b[2Jrestart"})
    await scenario.lead("a")
    await scenario.hang()

    (why,) = [e.message for e in (await scenario.cluster.list(Occurrence)).items if e.reason == "GangInvalid"]
    assert "healthd.dev/hang: '\\x1b[2Jrestart' is not one of ignore, restart, tell" in why
    assert await scenario.silence() is None


@pytest.mark.parametrize("text", ["{", "[]", '{"since":"x"}', '{"since":' * 5000, "\x00"])
async def test_an_unreadable_record_is_written_anew(scenario: HangingGang, text: str) -> None:
    await scenario.annotate("train", {"healthd.dev/silence": text})
    await scenario.lead("a")
    await scenario.hang()

    assert await scenario.silence() is not None
    assert await scenario.reported() == ["GangHangs"]


async def test_a_record_that_its_owner_made_up_alerts_no_one(scenario: HangingGang) -> None:
    sink = FakeSink()
    config = Config(alerts=AlertsPolicy(sinks=(a_sink_policy(sink.name),)))
    await scenario.clock.run_for(timedelta(hours=1))
    made_up = Silence(since=scenario.clock.now() - timedelta(minutes=50), seen_at=scenario.clock.now(), allowed=1,
                      period=1, members=())  # fmt: skip
    await scenario.annotate("train", {"healthd.dev/silence": msgspec.json.encode(made_up).decode()})
    await scenario.lead("a", sinks=[sink], config=config)
    await scenario.report(WORKING)
    await scenario.clock.run_for(timedelta(minutes=2))

    assert sink.sent == []
