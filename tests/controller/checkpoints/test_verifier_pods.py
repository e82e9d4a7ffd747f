"""Checkpoints on a claim that is not mounted here: pods look at them, one for each question."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import AlreadyExists, ClusterError, Forbidden, NotFound, WebhookFailed
from healthd.controller.checkpoints.mounted import FileCheckpoints, OnClaim
from healthd.controller.checkpoints.verifier_pods import (
    AT_ONCE,
    PodPurpose,
    VerificationRequest,
    VerifierPods,
    image_of,
)
from healthd.controller.ports import CheckpointAnswer
from healthd.core.api import ChosenCheckpoint, Container, GangRef, Pod, PodManifest, Recovery, RejectedCheckpoint
from healthd.core.api.model import Phase
from healthd.core.checkpoint.poll_interval import LONGEST
from healthd.core.checkpoint.verification import VerificationReport
from healthd.core.config import CheckpointsPolicy
from healthd.core.recovery.gang import ClaimMount, GangOptions, Root, RunsAs
from healthd.gangs.kinds import ALL
from tests.builders import a_job, a_pod, gang_ref
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import ManualClock, counting_uids

IMAGE = "registry.example/healthd:1"
SAVING = GangOptions(restart=True, checkpoint="pvc://data/llama", checkpoint_format="safetensors")
MOUNT = ClaimMount(claim="data", path="/mnt", runs_as=RunsAs(user=1000))
WHOLE = ChosenCheckpoint(path="/volume/llama/step_7", step=7, format="safetensors")
TORN = RejectedCheckpoint(path="/volume/llama/step_8", step=8, reason="model.safetensors: cut off")


def test_the_pod_of_a_kind_of_which_another_has_the_name_is_owned_by_the_right_one() -> None:
    assert "VolcanoJob" in ALL
    root = dataclasses.replace(a_root(), ref=GangRef(kind="VolcanoJob", name="llama", namespace="default", uid="u"))
    place = OnClaim("data", PurePosixPath("llama"))

    owner = VerificationRequest(root, place, PodPurpose.CHECK).owner

    assert (owner.api_version, owner.kind, owner.name) == ("batch.volcano.sh/v1alpha1", "Job", "llama")


class StoppedGang:
    """A cluster with one stopped gang, and what looks its checkpoints up."""

    def __init__(self, tmp_path: Path, policy: CheckpointsPolicy | None = None) -> None:
        self.clock = ManualClock()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.policy = policy or CheckpointsPolicy()
        self.tmp_path = tmp_path
        self.image = IMAGE
        self.pods = self.replica()

    def replica(self) -> VerifierPods:
        """What another controller has, which knows nothing of this one."""
        return VerifierPods(FileCheckpoints(self.tmp_path), self.cluster, self.clock, self.policy, self.own_image)

    async def own_image(self) -> str:
        return self.image

    async def ask(
        self,
        recovery: Recovery | None = None,
        *,
        newer_than: int | None = None,
        by: VerifierPods | None = None,
        **root: Any,
    ) -> CheckpointAnswer:
        return await (by or self.pods).latest(a_gang(**root), newer_than, await self.stored(recovery or STOPPED))

    async def stored(self, recovery: Recovery) -> Recovery:
        """*recovery* as the cluster has it: a pod whose owner is not there is collected."""
        with suppress(AlreadyExists):
            await self.cluster.create(recovery)
        found = await self.cluster.get(Recovery, recovery.metadata.name, recovery.metadata.namespace)
        return msgspec.structs.replace(recovery, metadata=found.metadata)

    async def names(self, namespace: str = "default") -> list[str]:
        return [pod.metadata.name for pod in (await self.cluster.list(Pod, namespace=namespace)).items]

    async def until_asked(self) -> None:
        while not await self.names():  # noqa: ASYNC110 - there is no event of the thread behind it
            await asyncio.sleep(0)

    async def only_pod(self) -> PodManifest:
        (name,) = await self.names()
        return await self.cluster.get(PodManifest, name, "default")

    async def announce(self, words: str, *, phase: str = "Succeeded", code: int = 0) -> None:
        """The one pod ends with these last words."""
        ended = {"name": "verifier", "state": {"terminated": {"exitCode": code, "message": words}}}
        await self.set_status({"phase": phase, "containerStatuses": [ended]})

    async def report(self, report: VerificationReport) -> None:
        await self.announce(msgspec.json.encode(report).decode())

    async def set_status(self, status: Mapping[str, Any]) -> None:
        name = (await self.only_pod()).metadata.name
        await self.cluster.patch(Pod, name, {"status": status}, namespace="default", subresource="status")


def a_gang(name: str = "train", *, namespace: str = "default", **fields: Any) -> Root:
    root = a_root(name, **{"options": SAVING, "mounts": (MOUNT,), **fields})
    return dataclasses.replace(root, ref=msgspec.structs.replace(root.ref, namespace=namespace))


STOPPED = a_recovery_in(Phase.CHOOSING)


@pytest.fixture
def bench(tmp_path: Path) -> StoppedGang:
    return StoppedGang(tmp_path)


async def test_a_pod_is_made_and_asked_for_its_answer_later(bench: StoppedGang) -> None:
    asked = await bench.ask()
    await bench.report(VerificationReport(found=WHOLE, rejected=[TORN]))
    answered = await bench.ask()

    assert asked.pending
    assert not answered.pending
    assert answered.found == ChosenCheckpoint(path="/mnt/llama/step_7", step=7, format="safetensors")
    assert [refused.path for refused in answered.rejected] == ["/mnt/llama/step_8"]


async def test_the_pod_is_gone_once_it_has_answered(bench: StoppedGang) -> None:
    await bench.ask()
    await bench.report(VerificationReport(found=WHOLE))
    await bench.ask()

    assert await bench.names() == []


async def test_an_answer_that_was_not_written_down_is_not_asked_for_again(bench: StoppedGang) -> None:
    await bench.ask()
    await bench.report(VerificationReport(found=WHOLE))
    first, second = await bench.ask(), await bench.ask()

    assert first == second
    assert await bench.names() == []


async def test_a_controller_that_takes_over_finds_the_pod_of_the_former(bench: StoppedGang) -> None:
    await bench.ask()
    await bench.report(VerificationReport(found=WHOLE))

    answer = await bench.ask(by=bench.replica())

    assert answer.found is not None


async def test_each_attempt_is_verified_anew(bench: StoppedGang) -> None:
    await bench.ask()
    await bench.ask(attempt=1)

    assert len(await bench.names()) == 2


async def test_the_recovery_owns_the_pod(bench: StoppedGang) -> None:
    await bench.ask()

    (owner,) = (await bench.only_pod()).metadata.owner_references
    assert (owner.kind, owner.name) == ("Recovery", STOPPED.metadata.name)


async def test_the_pod_goes_with_its_recovery(bench: StoppedGang) -> None:
    await bench.ask()
    await bench.cluster.delete(Recovery, STOPPED.metadata.name, namespace="default")

    assert await bench.names() == []


async def test_the_pod_reads_the_folder_of_the_gang_as_the_user_of_the_gang(bench: StoppedGang) -> None:
    await bench.ask()

    spec = (await bench.only_pod()).spec
    assert spec["containers"][0]["command"][:4] == ["healthd", "checkpoints", "report", "/volume/llama"]
    assert "--format=safetensors" in spec["containers"][0]["command"]
    assert spec["containers"][0]["image"] == IMAGE
    assert spec["securityContext"]["runAsUser"] == 1000
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "data", "readOnly": True}


async def test_a_pod_that_fails_is_a_reason_to_hold_and_is_tried_again_after_a_while(bench: StoppedGang) -> None:
    await bench.ask()
    await bench.announce("healthd: out of luck", phase="Failed", code=1)
    failed, soon = await bench.ask(), await bench.ask()
    bench.clock.advance(timedelta(minutes=1))
    later = await bench.ask()

    assert failed.found is None
    assert "out of luck" in failed.rejected[0].reason
    assert soon == failed
    assert later.pending


async def test_each_failure_is_followed_by_a_longer_wait(bench: StoppedGang) -> None:
    for _ in range(3):
        await bench.ask()
        await bench.announce("no", phase="Failed", code=1)
        await bench.ask()
        bench.clock.advance(timedelta(minutes=1))

    assert not (await bench.ask()).pending


async def test_a_pod_that_finds_no_node_says_why(bench: StoppedGang) -> None:
    await bench.ask()
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    await bench.set_status({"phase": "Pending", "conditions": [condition]})
    early = await bench.ask()
    bench.clock.advance(timedelta(minutes=6))
    late = await bench.ask()

    assert "0/3 nodes are available" in early.pending
    assert "0/3 nodes are available" in late.rejected[0].reason
    assert await bench.names() == []


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("the account healthd-controller may not create pods"),
        WebhookFailed('failed calling webhook "pods.example.com": no endpoints available'),
    ],
    ids=["no right", "a dead webhook"],
)
async def test_where_no_pod_may_be_made_that_is_said(tmp_path: Path, error: ClusterError) -> None:
    bench = StoppedGang(tmp_path)

    class NotAllowed:
        """A cluster in which no user may make pods."""

        async def get(self, *_: Any) -> Any:
            raise NotFound("none")

        async def create(self, _: Any) -> Any:
            raise error

    cluster: Any = NotAllowed()
    pods = VerifierPods(FileCheckpoints(tmp_path), cluster, bench.clock, bench.policy, bench.own_image)

    answer = await pods.latest(a_gang(), recovery=STOPPED)

    assert str(error) in answer.rejected[0].reason
    assert answer.rejected[0].unread


async def test_without_an_image_that_is_said(bench: StoppedGang) -> None:
    bench.image = ""

    assert "checkpoints.verifier_image" in (await bench.ask()).rejected[0].reason


async def test_a_claim_that_is_mounted_here_needs_no_pod(bench: StoppedGang) -> None:
    (bench.tmp_path / "default" / "data").mkdir(parents=True)

    assert await bench.ask() == CheckpointAnswer(None, [])
    assert await bench.names() == []


@pytest.mark.parametrize("location", ["file:///nowhere", "pvc://../etc", ""])
async def test_other_places_need_no_pod(bench: StoppedGang, location: str) -> None:
    await bench.ask(options=GangOptions(restart=True, checkpoint=location))

    assert await bench.names() == []


async def test_with_verifiers_switched_off_no_pod_is_made(tmp_path: Path) -> None:
    bench = StoppedGang(tmp_path, CheckpointsPolicy(verifier=False))

    answer = await bench.ask()

    assert "not mounted" in answer.rejected[0].reason
    assert await bench.names() == []


async def test_only_so_many_pods_read_at_once(bench: StoppedGang) -> None:
    for number in range(AT_ONCE + 2):
        await bench.ask(a_recovery_named(f"train{number}-1"), name=f"train{number}")

    assert len(await bench.names()) == AT_ONCE


async def test_a_burst_of_one_namespace_does_not_hold_up_the_gang_of_another(bench: StoppedGang) -> None:
    for number in range(AT_ONCE + 2):
        await bench.ask(a_recovery_named(f"train{number}-1"), name=f"train{number}")

    await bench.ask(a_recovery_named("other-1", namespace="team-b"), name="other", namespace="team-b")

    assert await bench.names("team-b") == ["other-1-verify-0"]


async def test_a_recovery_that_asks_no_more_makes_room_and_its_pod_goes(bench: StoppedGang) -> None:
    for number in range(AT_ONCE):
        await bench.ask(a_recovery_named(f"train{number}-1"))
    bench.clock.advance(timedelta(minutes=2))
    await bench.ask(a_recovery_named("late-1"))

    assert await bench.names() == ["late-1-verify-0"]


def a_recovery_named(name: str, namespace: str = "default") -> Recovery:
    meta = msgspec.structs.replace(STOPPED.metadata, name=name, namespace=namespace)
    gang = msgspec.structs.replace(STOPPED.spec.gang, namespace=namespace)
    return msgspec.structs.replace(STOPPED, metadata=meta, spec=msgspec.structs.replace(STOPPED.spec, gang=gang))


async def test_a_gang_that_runs_again_is_read_now_and_then(bench: StoppedGang) -> None:
    confirming = a_recovery_in(Phase.CONFIRMING)

    at_first = await bench.ask(confirming)
    none_yet = await bench.names()
    bench.clock.advance(LONGEST)
    later = await bench.ask(confirming)

    assert (at_first, none_yet) == (CheckpointAnswer(None, []), [])
    assert later.pending


async def test_the_first_sample_after_a_start_comes_soon(bench: StoppedGang) -> None:
    confirming = a_recovery_in(Phase.CONFIRMING)
    await bench.ask(confirming)
    bench.clock.advance(timedelta(seconds=10))

    assert (await bench.ask(confirming)).pending


async def test_it_is_looked_for_what_is_newer_than_it_was_started_from(bench: StoppedGang) -> None:
    confirming = a_recovery_in(Phase.CONFIRMING)
    await bench.ask(confirming, newer_than=7)
    bench.clock.advance(LONGEST)
    await bench.ask(confirming, newer_than=7)

    assert "--newer-than=7" in (await bench.only_pod()).spec["containers"][0]["command"]


async def test_the_image_is_that_of_the_controllers_own_pod(bench: StoppedGang) -> None:
    await bench.cluster.create(a_pod("me", container=Container(name="controller", image=IMAGE)))

    assert await image_of(bench.cluster, "default", "me") == IMAGE
    assert await image_of(bench.cluster, "default", "nobody") == ""
    assert await image_of(bench.cluster, "", "") == ""


async def test_a_gang_that_runs_is_checked_by_a_pod_only_where_that_is_wanted(bench: StoppedGang) -> None:
    assert await bench.pods.report(a_gang()) is None
    assert await bench.names() == []


async def test_a_pod_checks_a_gang_that_runs_by_headers_and_sizes_and_goes_with_it(bench: StoppedGang) -> None:
    job = await bench.cluster.create(a_job("train"))
    root = a_gang(ref=gang_ref(job))
    pods = VerifierPods(
        FileCheckpoints(bench.tmp_path), bench.cluster, bench.clock, bench.policy, bench.own_image, checks=True
    )
    read = asyncio.create_task(pods.report(root))
    await bench.until_asked()
    pod = await bench.only_pod()
    await bench.report(VerificationReport(found=WHOLE, size=7))
    await bench.clock.run_for(timedelta(seconds=10))

    report = await read
    assert report is not None
    assert report.found is not None
    assert (report.found.path, report.size) == ("/mnt/llama/step_7", 7)
    assert "--quick" in pod.spec["containers"][0]["command"]
    assert [owner.kind for owner in pod.metadata.owner_references] == ["Job"]
    assert await bench.names() == []


async def test_a_pod_that_cannot_check_a_gang_is_reported_as_a_recovery_would_be_held(bench: StoppedGang) -> None:
    root = a_gang(ref=gang_ref(await bench.cluster.create(a_job("train"))))
    pods = VerifierPods(
        FileCheckpoints(bench.tmp_path), bench.cluster, bench.clock, bench.policy, bench.own_image, checks=True
    )
    read = asyncio.create_task(pods.report(root))
    await bench.until_asked()
    await bench.announce("no such image", phase="Failed", code=1)
    await bench.clock.run_for(timedelta(seconds=10))

    report = await read
    assert report is not None
    assert [refused.path for refused in report.rejected] == [root.options.checkpoint]
    assert "no such image" in report.rejected[0].reason
