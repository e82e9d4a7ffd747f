"""
Objects that mean harm, through the real controller: `python -m tests.fuzz.objects --objects 1000000 --seed 1`.

Annotations, labels, specs and statuses of every kind that is read are made absurd (`tests.fuzz.hostile`), stored past
all checks, changed and deleted, while a gang of another namespace has faults. The controller lives, recovers that gang
each time, touches it at no other time, and no object brings out an error of ours; its memory is reported. The same seed
gives the same objects.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import structlog
from msgspec.structs import replace

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.embedded import store as kept
from healthd.controller.daemon import ControllerDaemon, ControllerDependencies
from healthd.core.api import ANNOTATION_ATTEMPT, RESOURCES, Job, Node, Pod, Recovery
from healthd.core.api.model import Phase
from healthd.core.config import BreakerPolicy, Config
from healthd.core.recovery.members import attempt_of
from healthd.gangs import ADAPTERS
from healthd.gangs.adapter import GangAdapter
from tests.builders import a_job, a_node, a_pod
from tests.fakes import START, ManualClock, counting_uids, settle
from tests.fuzz.hostile import Hostile, Json, objects
from tests.simulation.training import SeenCheckpoints, Store

BATCH = 400
"""Objects that are there at the same time, and then deleted."""
FAULT_EVERY = 20
"""Batches from one fault of the good gang to the next."""
SHOWN = 10
"""Failures that are printed."""
TRACED = 900
"""Characters of a traceback."""
Adapters = Mapping[str, GangAdapter[Any]]
RANKS = 2
PATIENCE = timedelta(minutes=15)
"""So long may a recovery of the good gang take, on its clock."""


@dataclass
class Report:
    """What came of it."""

    objects: int = 0
    recovered: int = 0
    invalid: int = 0
    failures: list[str] = field(default_factory=list)
    digest: str = ""
    """Of all objects: the same for the same seed."""
    seconds: float = 0.0
    peak_mb: float = 0.0


class _NoStores(dict[str, Store]):
    """Nothing was ever saved."""

    def __missing__(self, gang: str) -> Store:
        return Store()


class Kubernetes:
    """The Job controller and the kubelets of the good gang, and a way to store what no API server would."""

    def __init__(self, cluster: EmbeddedCluster, store: kept.SqliteStore, clock: ManualClock) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._uids = counting_uids("raw")
        self._pods = itertools.count()

    async def set_up(self) -> None:
        for number in range(RANKS + 1):
            node = await self._cluster.create(a_node(f"good-{number}"))
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            await self._cluster.patch(Node, node.metadata.name, ready, subresource="status")
        notes = {"healthd.dev/restart": "enabled"}
        await self._cluster.create(a_job("train", namespace="good", ranks=RANKS, annotations=notes))
        await self.work()

    async def work(self) -> None:
        """Let the Job have the pods that it asks for. Something changes each second, for the watches to be heard of."""
        beat = {"metadata": {"annotations": {"beat": self._clock.now().isoformat()}}}
        await self._cluster.patch(Node, "good-0", beat)
        job = await self._cluster.get(Job, "train", "good")
        pods = (await self._cluster.list(Pod, namespace="good")).items
        living = [pod for pod in pods if pod.status.phase == "Running"]
        if job.spec.suspend:
            for pod in pods:
                await self._end(pod)
            await self._say(job, active=0, suspended="True")
        elif not pods:
            for rank in range(RANKS):
                await self._begin(job, rank)
            await self._say(job, active=RANKS, suspended="False")
        elif len(living) == RANKS and job.status.active != RANKS:
            await self._say(job, active=RANKS, suspended="False")

    async def crash(self) -> None:
        """One rank of the good gang fails by itself."""
        pod = (await self._cluster.list(Pod, namespace="good")).items[0]
        await self._tell(pod, "Failed", exit_code=1)

    async def attempt(self) -> int:
        pods = (await self._cluster.list(Pod, namespace="good")).items
        return max((attempt_of(pod) for pod in pods), default=0)

    def store(self, batch: Iterable[Hostile]) -> list[tuple[kept.RowKey, Json]]:
        """The objects as they are, past all checks."""
        stored = []
        with self._cluster._writing():
            for each in batch:
                named = RESOURCES[each.kind]
                meta = each.body["metadata"]
                key = kept.RowKey(named.stored_as, meta.get("namespace", ""), meta["name"])
                if self._store.read(key) is not None:
                    continue
                uid = self._uids()
                self._store.insert(key, uid, *self._stamped(each.body, uid))
                stored.append((key, each.later or each.body))
        return stored

    def change(self, stored: Iterable[tuple[kept.RowKey, Json]]) -> None:
        """What some of them become."""
        with self._cluster._writing():
            for key, later in stored:
                body = self._store.read(key)
                if body is not None:
                    uid = json.loads(body)["metadata"]["uid"]
                    self._store.update(key, *self._stamped(later, uid), None)

    def clear(self) -> None:
        """Everything that is not of the good gang is gone."""
        with self._cluster._writing():
            for named in set(RESOURCES.values()):
                for body in self._store.read_all(named.stored_as, None):
                    meta = json.loads(body)["metadata"]
                    key = kept.RowKey(named.stored_as, meta.get("namespace", ""), meta["name"])
                    is_ours = key.namespace in ("good", "healthd-system") or key.name.startswith("good-")
                    if not is_ours or named.plural == "events":
                        version = self._store.head() + 1
                        meta["resourceVersion"] = str(version)
                        self._store.remove(key, version, json.dumps({**json.loads(body), "metadata": meta}).encode())
                        self._store.set_owners(key, ())

    def _stamped(self, body: Json, uid: str) -> tuple[int, bytes]:
        version = self._store.head() + 1
        served = {"uid": uid, "resourceVersion": str(version), "creationTimestamp": self._clock.now().isoformat()}
        return version, json.dumps({**body, "metadata": {**body["metadata"], **served}}).encode()

    async def _begin(self, job: Job, rank: int) -> None:
        notes = job.spec.template.metadata.annotations
        attempt = {ANNOTATION_ATTEMPT: notes[ANNOTATION_ATTEMPT]} if ANNOTATION_ATTEMPT in notes else {}
        labels = {"batch.kubernetes.io/job-name": "train"}
        name = f"train-{rank}-{next(self._pods)}"
        pod = a_pod(
            name,
            namespace="good",
            node=f"good-{rank}",
            index=rank,
            owner=job,
            labels=labels,
            annotations=attempt,
        )
        await self._tell(await self._cluster.create(pod), "Running")

    async def _end(self, pod: Pod) -> None:
        await self._tell(pod, "Failed", exit_code=143)
        await self._cluster.delete(Pod, pod.metadata.name, namespace="good", grace_seconds=0)

    async def _tell(self, pod: Pod, phase: str, exit_code: int | None = None) -> None:
        ended = {"terminated": {"exitCode": exit_code, "finishedAt": self._clock.now().isoformat()}}
        running = {"running": {"startedAt": self._clock.now().isoformat()}}
        container = {"name": "main", "state": running if exit_code is None else ended}
        status = {"status": {"phase": phase, "containerStatuses": [container]}}
        await self._cluster.patch(Pod, pod.metadata.name, status, namespace="good", subresource="status")

    async def _say(self, job: Job, *, active: int, suspended: str) -> None:
        condition = {"type": "Suspended", "status": suspended}
        status: dict[str, Any] = {"active": active, "conditions": [condition]}
        if active and suspended == "False" and job.status.active != active:
            status["startTime"] = self._clock.now().isoformat()
        await self._cluster.patch(Job, "train", {"status": status}, namespace="good", subresource="status")


class Fuzz:
    """The good gang, the tenant who means harm, and the controller between them."""

    def __init__(self, adapters: Adapters) -> None:
        self.clock = ManualClock(START)
        store = kept.SqliteStore(None, history=5000, durable=False)
        self.cluster = EmbeddedCluster(store, self.clock, counting_uids(), bookmark_every=1)
        self.kubernetes = Kubernetes(self.cluster, store, self.clock)
        config = Config()
        never = replace(
            config.recovery,
            max_no_advance=10**6,
            confirm_after=timedelta(seconds=5),
        )
        self.daemon = ControllerDaemon(
            replace(
                config,
                recovery=never,
                breaker=BreakerPolicy(per_other_namespace=0, unhealthy_share=1),
                http=replace(config.http, address=""),
            ),
            ControllerDependencies(
                identity="a",
                namespace="healthd-system",
                cluster=self.cluster,
                clock=self.clock,
                adapters=adapters,
                checkpoints=SeenCheckpoints(_NoStores()),
                jitter=lambda: 0.5,
            ),
        )
        self.report = Report()

    async def run(self, count: int, seed: int, until: float) -> Report:
        """Feed *count* objects, or as many as there is time for *until*."""
        await self.kubernetes.set_up()
        replica = asyncio.create_task(self.daemon.run())
        await self._pass(5)
        digest, began = hashlib.sha256(), time.monotonic()
        attempt = 0
        for number, batch in enumerate(_batches(objects(count, seed))):
            digest.update(json.dumps([each.body for each in batch]).encode(errors="replace"))
            stored = self.kubernetes.store(batch)
            await self._pass(1)
            self.kubernetes.change(stored)
            if number % FAULT_EVERY == 0:
                attempt += 1
                await self._fault(attempt)
            await self._pass(1)
            self.report.invalid += sum(bool(root.invalid) for root in self.daemon.cluster_state.roots.values())
            self.report.objects += len(batch)
            self.kubernetes.clear()
            await self._pass(1)
            if await self.kubernetes.attempt() != attempt:
                self.report.failures.append(f"the good gang is at attempt {await self.kubernetes.attempt()}")
            if replica.done():
                self.report.failures.append(f"the controller has ended: {replica.exception()!r}")
            if self.report.failures or time.monotonic() > until:
                break
        self.report.seconds = time.monotonic() - began
        self.report.digest = digest.hexdigest()
        self.report.peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if not replica.done():
            self.daemon.stop()
        await asyncio.gather(replica, return_exceptions=True)
        self.cluster.close()
        return self.report

    async def _fault(self, attempt: int) -> None:
        """A rank of the good gang fails; the gang is started again, as attempt number *attempt*."""
        await self.kubernetes.crash()
        end = self.clock.now() + PATIENCE
        while self.clock.now() < end:
            await self._pass(5)
            recoveries = (await self.cluster.list(Recovery, namespace="good")).items
            if len(recoveries) and all(each.status.phase is Phase.RECOVERED for each in recoveries):
                self.report.recovered += await self.kubernetes.attempt() == attempt
                return
        said = [each.status.message for each in recoveries if each.status.phase is not Phase.RECOVERED]
        self.report.failures.append(f"the good gang did not recover: {said}")

    async def _pass(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.clock.run_for(timedelta(seconds=1))
            await self.kubernetes.work()
            await settle()


def fuzz(count: int, seed: int, *, seconds: float = 1e9, adapters: Adapters = ADAPTERS) -> Report:
    """Feed *count* objects that are made from *seed*; stop after the first failure, or so many *seconds*."""
    with structlog.testing.capture_logs(processors=[_keep_errors]) as logs:
        report = asyncio.run(Fuzz(adapters).run(count, seed, time.monotonic() + seconds))
    for each in logs:
        reported = str(each.get("exception"))[-TRACED:]
        report.failures.append(f"{each['event']}: {each.get('object') or each.get('gang')}: {reported}")
    return report


def _keep_errors(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What is an error of ours, with its traceback; the rest would fill the memory."""
    if method not in ("exception", "error") or event.get("event") in EXPECTED:
        raise structlog.DropEvent
    return structlog.processors.format_exc_info(logger, method, event)


EXPECTED = {"gang.unknown_kind", "controller.cache_stale"}


def _batches(hostile: Iterator[Hostile]) -> Iterator[list[Hostile]]:
    while batch := list(itertools.islice(hostile, BATCH)):
        yield batch


def main() -> int:
    """Exit code 1 when anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.objects")
    parser.add_argument("--objects", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    args = parser.parse_args()
    report = fuzz(args.objects, args.seed, seconds=args.seconds)
    for failure in report.failures[:SHOWN]:
        print(failure)
    kinds = Counter(failure.split(":")[0] for failure in report.failures)
    print(
        f"seed {args.seed}: {report.objects:,} objects in {report.seconds:.0f} s "
        f"({report.objects / max(report.seconds, 1e-9):,.0f}/s), {report.invalid:,} invalid roots, "
        f"{report.recovered} faults of the good gang recovered, peak {report.peak_mb:.0f} MB, "
        f"{len(report.failures)} failures {dict(kinds)}"
    )
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main())
