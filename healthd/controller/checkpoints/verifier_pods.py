"""
Checkpoints on claims that are not mounted in the controller's pod: a verifier pod in the gang's namespace reads them.

Nothing waits here. Each call reads the pod once, creates it if there is none, and returns at once: with the pod's
result, or with "no answer yet". The name of a pod is made from the recovery and its attempt, so a controller that takes
over finds the pod of the controller before it. The recovery owns the pod, so no pod outlives its recovery.

The result comes from a program in a namespace of users: any user who may create pods there could write it. It decides
which checkpoint the gang of that namespace resumes from, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import structlog

from healthd.clock import Clock
from healthd.cluster.port import AlreadyExists, Cluster, Conflict, NotFound, Refused
from healthd.controller.checkpoints.mounted import CheckpointLocation, OnClaim, in_pods, on_claim, seen_there
from healthd.controller.ports import CheckpointAnswer, Checkpoints, Looker
from healthd.core.api import (
    RESOURCES,
    ChosenCheckpoint,
    OwnerReference,
    Pod,
    Recovery,
    RecoveryStatus,
    unread_place,
)
from healthd.core.api.model import Phase
from healthd.core.backoff import Backoff, no_jitter
from healthd.core.checkpoint.poll_interval import next_poll
from healthd.core.checkpoint.precheck import refusing
from healthd.core.checkpoint.verification import (
    VOLUME,
    Busy,
    Order,
    Verdict,
    VerificationReport,
    VerifierFailed,
    judge_verifier,
    saves,
    verifier_pod,
)
from healthd.core.config import CheckpointsPolicy
from healthd.core.fair_shares import may_begin
from healthd.core.recovery.gang import Root, RunsAs
from healthd.core.recovery.recovery_status import blamed

log = structlog.get_logger()

KEPT_FOR = timedelta(seconds=30)
"""How long an answer is valid. It must be written to the recovery, and another writer may come in between."""
LONGEST_KEPT = timedelta(minutes=10)
"""The longest such time for answers that hold a gang: each new answer costs a pod that reads everything."""
AT_ONCE = 8
"""Pods that read at the same time, as `core.fair_shares` counts them: a rack may lose its power, and the file server
has other work."""
POLL = timedelta(seconds=5)
FORGOTTEN_AFTER = timedelta(minutes=1)
"""After so long without a question about it, a pod belongs to a recovery that no longer needs it."""


class Here(Checkpoints, Looker, Protocol):
    """The checkpoints that this process itself can read."""

    async def reads(self, root: Root) -> bool:
        """Whether this process can read the location that *root* names. Raises TimeoutError."""
        ...


@dataclass(frozen=True, slots=True)
class Known:
    """An answer, and the time until which it is not asked again."""

    answer: CheckpointAnswer
    until: datetime


class PodPurpose(StrEnum):
    """Why the checkpoints are read; it is a part of the names of pods."""

    VERIFY = "verify"
    """The gang is stopped and waits for the answer."""
    READ_STEP = "look"
    """The gang runs again: does it make progress?"""
    CHECK = "check"
    """There is no fault: could the gang be resumed?"""


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """What to read at *place*, and for which recovery, where there is one."""

    root: Root
    place: OnClaim
    purpose: PodPurpose
    recovery: Recovery | None = None
    newer_than: int | None = None
    doubted: tuple[ChosenCheckpoint, ...] = ()

    @property
    def name(self) -> str:
        """The name of the pod that answers it."""
        asker = self.recovery.metadata.name if self.recovery else f"{self.root.ref.name}-{self.root.ref.uid[:5]}"
        return f"{asker}-{self.purpose}-{self.root.attempt}"

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name of that pod: unique in the whole cluster."""
        return self.root.ref.namespace, self.name

    @property
    def folder(self) -> Path:
        """The folder that the pod reads, as a path in the pod."""
        return Path(VOLUME) / self.place.inside

    @property
    def owner(self) -> OwnerReference:
        """The owner of the pod: the pod is deleted with it, if there is no further question."""
        if self.recovery is not None:
            meta = self.recovery.metadata
            return OwnerReference(
                api_version=RESOURCES[Recovery].api_version, kind="Recovery", name=meta.name, uid=meta.uid
            )
        ref = self.root.ref
        kind = next(each for each in RESOURCES.values() if each.name == ref.kind)
        return OwnerReference(api_version=kind.api_version, kind=kind.kind, name=ref.name, uid=ref.uid)


class VerifierPods:
    """
    Checkpoints of gangs at any location. Those on claims that *here* cannot read are read by a verifier pod.

    *own_image* returns the image that this program runs from; empty when it does not run in a pod. With *checks*, pods
    also check running gangs.
    """

    def __init__(
        self,
        here: Here,
        cluster: Cluster,
        clock: Clock,
        policy: CheckpointsPolicy,
        own_image: Callable[[], Awaitable[str]],
        *,
        checks: bool = False,
    ) -> None:
        self._here = here
        self._cluster = cluster
        self._clock = clock
        self._policy = policy
        self._own_image = own_image
        self._checks = checks
        self._image = policy.verifier_image
        self._known: dict[tuple[str, str], Known] = {}
        self._backoff: dict[tuple[str, str], Backoff] = {}
        self._reading: dict[tuple[str, str], datetime] = {}

    async def newest_step(self, root: Root) -> int | None:
        """A cheap check of progress, where this process can read. Raises OSError."""
        return await self._here.newest_step(root)

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: Recovery | None = None,
        doubted: Sequence[ChosenCheckpoint] = (),
    ) -> CheckpointAnswer:
        """The newest checkpoint that will load, or a pending answer. Raises OSError, ClusterError."""
        place = await self._elsewhere(root)
        if place is None or recovery is None:
            return await self._here.latest(root, newer_than, recovery, doubted)
        purpose = PodPurpose.READ_STEP if recovery.status.phase is Phase.CONFIRMING else PodPurpose.VERIFY
        question = VerificationRequest(root, place, purpose, recovery, newer_than, tuple(doubted))
        now = self._clock.now()
        await self._forget_others(question, now)
        if purpose is PodPurpose.READ_STEP and question.key not in self._known:
            # The gang has only just started to run.
            self._keep(question, CheckpointAnswer(None, []))
        known = self._known.get(question.key)
        if known is not None and now < known.until:
            return known.answer
        answer = _answer(question, await self._ask(question))
        if not answer.pending:
            self._keep(question, answer)
        return answer

    async def report(self, root: Root) -> VerificationReport | None:
        """A quick check; where a pod does it, this waits for the pod. Raises OSError, ClusterError."""
        place = await self._elsewhere(root)
        if place is None or not self._checks:
            return await self._here.report(root)
        question = VerificationRequest(root, place, PodPurpose.CHECK)
        while isinstance(verdict := await self._ask(question), Busy):
            await self._clock.sleep(POLL)
        return (
            seen_there(verdict, _place_of(question))
            if isinstance(verdict, VerificationReport)
            else refusing(root, verdict.why)
        )

    async def _elsewhere(self, root: Root) -> OnClaim | None:
        """The location on a claim that only a pod can read; None for all others."""
        place = on_claim(root.options.checkpoint)
        return place if place and self._policy.verifier and not await self._here.reads(root) else None

    async def _ask(self, question: VerificationRequest) -> Verdict:
        """Read the pod once, or create it."""
        try:
            pod = await self._cluster.get(Pod, question.name, question.root.ref.namespace)
        except NotFound:
            return await self._make(question)
        verdict = judge_verifier(pod, self._policy.verify_within, self._clock.now())
        if isinstance(verdict, Busy):
            self._reading[question.key] = self._clock.now()
            return verdict
        self._reading.pop(question.key, None)
        await self._remove(pod)
        if isinstance(verdict, VerifierFailed):
            log.warning("verifier.failed", namespace=pod.metadata.namespace, pod=pod.metadata.name, why=verdict.why)
        return verdict

    async def _make(self, question: VerificationRequest) -> Busy | VerifierFailed:
        namespace = question.root.ref.namespace
        if not may_begin(namespace, [space for space, name in self._reading if name != question.name], AT_ONCE):
            return Busy("the checkpoints of other gangs are being verified first")
        self._image = self._image or await self._own_image()
        if not self._image:
            return VerifierFailed("which image verifies it is not known: name it in checkpoints.verifier_image")
        try:
            await self._cluster.create(verifier_pod(self._order(question)))
            log.info("verifier.made", namespace=question.root.ref.namespace, pod=question.name)
        except Refused as error:
            return VerifierFailed(f"no pod may be made that verifies it: {error}")
        except AlreadyExists:
            pass  # another controller was faster; it is the same pod
        self._reading[question.key] = self._clock.now()
        return Busy(f"verifier pod {question.name} is made")

    def _order(self, question: VerificationRequest) -> Order:
        root = question.root
        mount = next((each for each in root.mounts if each.claim == question.place.claim), None)
        status = question.recovery.status if question.recovery else RecoveryStatus()
        stopped_on = {pod.node for pod in status.pods if pod.node}
        return Order(
            name=question.name,
            namespace=root.ref.namespace,
            owner=question.owner,
            image=self._image,
            claim=question.place.claim,
            folder=str(question.folder),
            format=root.options.checkpoint_format,
            quick=question.purpose is PodPurpose.CHECK,
            newer_than=question.newer_than,
            doubted=saves(question.doubted),
            runs_as=mount.runs_as if mount else RunsAs(),
            user=self._policy.verifier_user,
            near=stopped_on if question.purpose is PodPurpose.VERIFY else set(root.placement.values()),
            not_on=blamed(status),
            deadline=self._policy.verify_within,
        )

    async def _remove(self, pod: Pod) -> None:
        """Delete *pod* at once, without its kubelet: it only reads, so a second pod beside it does no harm."""
        meta = pod.metadata
        with suppress(NotFound, Conflict):
            await self._cluster.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)

    def _keep(self, question: VerificationRequest, answer: CheckpointAnswer) -> None:
        """Keep an answer until it is time to ask again."""
        if question.purpose is PodPurpose.READ_STEP:
            now = self._clock.now()
            since = question.recovery.status.phase_since if question.recovery else None
            wait = next_poll(question.root, since or now, now)
        elif answer.found is not None:
            wait = KEPT_FOR
        else:
            wait = self._backoff.setdefault(question.key, Backoff(KEPT_FOR, LONGEST_KEPT, no_jitter)).next()
        self._known[question.key] = Known(answer, self._clock.now() + wait)

    async def _forget_others(self, question: VerificationRequest, now: datetime) -> None:
        """Forget questions that will not come again. Their pods are deleted now, and not only with their owners."""
        late = [key for key, at in self._reading.items() if now - at >= FORGOTTEN_AFTER and key != question.key]
        for namespace, name in late:
            del self._reading[namespace, name]
            with suppress(NotFound):
                await self._cluster.delete(Pod, name, namespace=namespace)
        for key in [key for key, known in self._known.items() if now - known.until > LONGEST_KEPT]:
            del self._known[key]
            self._backoff.pop(key, None)


async def image_of(cluster: Cluster, namespace: str, pod: str) -> str:
    """The image of the first container of a pod; empty when there is no such pod, or *pod* is empty."""
    if not pod:
        return ""
    try:
        found = await cluster.get(Pod, pod, namespace)
    except NotFound:
        return ""
    return next((container.image for container in found.spec.containers), "")


def _place_of(question: VerificationRequest) -> CheckpointLocation:
    there = in_pods(question.root.mounts, question.place) or question.root.options.checkpoint
    return CheckpointLocation(str(question.folder), there)


def _answer(question: VerificationRequest, verdict: Verdict) -> CheckpointAnswer:
    """The pod's result, with the paths that the gang's own pods use."""
    if isinstance(verdict, Busy):
        return CheckpointAnswer(None, [], pending=verdict.why)
    if isinstance(verdict, VerifierFailed):
        return CheckpointAnswer(None, [unread_place(question.root.options.checkpoint, verdict.why)])
    report = seen_there(verdict, _place_of(question))
    return CheckpointAnswer(report.found, report.rejected)
