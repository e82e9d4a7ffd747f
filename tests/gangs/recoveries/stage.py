"""One gang of a kind, its nodes and agents, the controllers of healthd, and what it has saved."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from healthd.clock import SystemClock
from healthd.core.api import (
    ANNOTATION_CHECKPOINT,
    ANNOTATION_GROW_BACK,
    ANNOTATION_MIN_NODES,
    ANNOTATION_PROGRESS,
    Pod,
    Recovery,
)
from healthd.core.api.model import Phase
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.members import attempt_of
from healthd.gangs.kinds import ALL
from tests.checkpoints.builders import a_sharded_step
from tests.gangs.recoveries.gangs import SHAPES, gang_of, root_of
from tests.kubernetes.rank_lifetimes import Ranks, rank_of
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.scenario import MEMBERS, Scenario
from tests.lab.kinds.gangs import KINDS, NAME, job
from tests.lab.kinds.kueue import QUEUE, queue
from tests.lab.programs import Program, wait_until

_PACE, _GROWS_WITHIN = 2.0, 180.0
"""Seconds between two saves, and within which healthd sees that a gang can grow."""
OTHER = "other"
"""A Job that has nothing to do with the gang."""
ELASTIC = {ANNOTATION_MIN_NODES: str(MEMBERS - 1), ANNOTATION_GROW_BACK: "enabled"}
"""Annotations of a gang that may go on with one member less."""
SAVED, NEXT = 1000, 1200
"""The step that is there before the fault, and one that is made after it."""


class Attempts(Ranks):
    """Sees that no pod of an attempt begins while one of another attempt lives, whatever the pods are called."""

    def _begins(self, pod: Pod) -> None:
        for other in self._alive.values():
            if attempt_of(other) != attempt_of(pod):
                self.overlaps.append(f"{pod.metadata.name} began while {other.metadata.name} lived")
        self.lives[rank_of(pod)].append(pod.metadata.uid)
        self.attempts[rank_of(pod)].append(attempt_of(pod))
        self._alive[pod.metadata.uid] = pod


class Stage:
    """Plays a gang of *kind*, which saves its steps in the folder *saved*; *operators* are the controllers of kinds."""

    def __init__(
        self, kind: str, scenario: Scenario, replicas: Replicas, saved: Path, operators: Collection[Program] = ()
    ) -> None:
        self.kind = kind
        self._operators = operators
        self.shape = SHAPES[kind]
        self.scenario = scenario
        self.replicas = replicas
        self.saved = saved
        scenario.ranks = Attempts()

    async def play(
        self,
        *,
        spares: int = 1,
        controllers: int = 1,
        lease: str = "15s",
        runs: bool = True,
        notes: Mapping[str, str] | None = None,
        elastic: bool = False,
        options: Mapping[str, str] | None = None,
        spec: Mapping[str, Any] | None = None,
    ) -> None:
        """
        The gang runs and has saved a step; *notes* are annotations of its pods, *options* of its root, and *spec* is
        merged into its own. Without *runs* it only begins.

        An *elastic* one may have one member less, and grows back after a minute when there are a node and a save.
        """
        self.save(SAVED)
        checkpoints = {"allowed": [f"{self.saved} for *"]}
        recovery = {"grow_after": "1s", "grow_every": "1m"} if elastic else {}
        await self.replicas.add(controllers, checkpoints=checkpoints, leader={"lease": lease}, recovery=recovery)
        if self.shape.is_queued:
            namespace = self.scenario.namespace
            self.scenario.control_plane.apply(
                json.dumps(_listed(queue(NAME, gpus=32, namespace=namespace, shared=namespace)))
            )
        asked = {ANNOTATION_CHECKPOINT: self.saved.as_uri(), **(ELASTIC if elastic else {}), **(options or {})}
        gang = gang_of(self.kind, notes or {}, self.shape.elastic if elastic else spec)
        await self.scenario.begin(gang, spares=spares, notes=asked)
        if runs:
            await self.scenario.until_running(0)

    def take_quota(self) -> None:
        """Another Job, whose pod finds no node, gets what there is in the queue."""
        other = job()
        other["metadata"] = {"name": OTHER, "labels": {QUEUE: NAME}}
        other["spec"] |= {"parallelism": 1, "completions": 1}
        other["spec"]["template"]["spec"]["nodeSelector"] = {"lab.healthd.dev/none": "there"}
        self.scenario.apply(other)
        wait_until("another to have the quota", self._has_quota, limit=30)

    def _has_quota(self) -> bool:
        return self.scenario.get(f"job/{OTHER}")["spec"].get("suspend") is False

    def give_quota_back(self) -> None:
        """The other Job goes."""
        self.scenario.kubectl("delete", f"job/{OTHER}")

    def save(self, step: int) -> Path:
        """A whole checkpoint of this step."""
        return a_sharded_step(self.saved, step)

    def node_of_first(self) -> str:
        """Where the pod runs that the others depend on."""
        assert self.shape.first is not None
        return self._node_of(lambda pod: self.is_first(pod))

    def node_of_other(self) -> str:
        """Where one of the others runs."""
        first = {pod.spec.node_name for pod in self.scenario.living() if self.is_first(pod)}
        return self._node_of(lambda pod: not self.is_first(pod) and (pod.spec.node_name not in first))

    def _node_of(self, fits: Any) -> str:
        return min(pod.spec.node_name for pod in self.scenario.living() if fits(pod))

    def is_first(self, pod: Pod) -> bool:
        """Whether the others depend on this pod."""
        first = self.shape.first
        return first is not None and all(pod.metadata.labels.get(key) == value for key, value in first.items())

    async def until_recovered(self, attempt: int = 1, *, missing: int = 0, step: int = NEXT) -> Recovery:
        """All members of the attempt but *missing* run; then the gang saves *step*, and healthd has seen it."""
        await self.scenario.until_phase(Phase.CONFIRMING)
        await self.scenario.until_running(attempt, MEMBERS + self.scenario.gang.beside - missing)
        self.save(step)
        return await self.scenario.until_phase(Phase.RECOVERED)

    async def save_until_it_grows(self, step: int) -> int:
        """The gang saves *step* and further ones, at a steady pace, until healthd restarts it to grow; the last one."""
        known = len(self.scenario.recoveries())
        async with asyncio.timeout(_GROWS_WITHIN):
            while len(self.scenario.recoveries()) == known:
                self.save(step := step + 1)
                await asyncio.sleep(_PACE)
        return step

    def patch(self, patch: Any) -> None:
        """As the user does it."""
        how = "json" if isinstance(patch, list) else "merge"
        self.scenario.kubectl("patch", KINDS[self.kind].patched, f"--type={how}", "-p", json.dumps(patch))

    def counted(self) -> dict[str, int]:
        """What counts against limits of the owner, where it is not 0."""
        found = {}
        for what, path in self.shape.counters:
            for value in _at(self.scenario.get(what).get("status", {}), path.split(".")):
                if value:
                    found[f"{what} {path}"] = value
        return found

    def is_known(self) -> bool:
        """Whether healthd has recorded the step of its root."""
        return ANNOTATION_PROGRESS in self.scenario.get(KINDS[self.kind].deleted)["metadata"]["annotations"]

    def is_older_than(self, seconds: float) -> bool:
        """Whether its youngest member was made that long ago."""
        made = [at for pod in self.scenario.living() if (at := pod.metadata.creation_timestamp) is not None]
        return bool(made) and (SystemClock().now() - max(made)).total_seconds() > seconds

    def is_complete(self) -> bool:
        """Whether it succeeded, by its object, or by its pods where they have none of their own."""
        return self.root().ending is RootOutcome.COMPLETE or self._has_succeeded()

    def _has_succeeded(self) -> bool:
        phases = [pod.status.phase for pod in self.scenario.pods()]
        return self.shape.root == "PodGang" and phases == ["Succeeded"] * MEMBERS

    def has_failed(self) -> bool:
        """Whether it failed for good."""
        return self.root().ending is RootOutcome.FAILED

    def root(self) -> Root:
        """As healthd reads it."""
        adapter = ALL[root_of(self.kind)]
        return adapter.read_any(msgspec.convert(self.scenario.get(KINDS[self.kind].deleted), adapter.kind))

    def hints(self) -> list[dict[str, str]]:
        """What healthd put into the environment of each pod, of every container."""
        pods = [pod for pod in self.scenario.get("pods")["items"] if self._lives(pod)]
        return [
            {env["name"]: env["value"] for env in container.get("env", []) if env["name"].startswith("HEALTHD_")}
            for pod in pods
            for container in pod["spec"]["containers"]
        ]

    def _lives(self, pod: Any) -> bool:
        return pod["metadata"]["uid"] in {each.metadata.uid for each in self.scenario.living()}

    def describe(self) -> str:
        """All that helps to understand a failure. An operator that ended stops and starts nothing any more."""
        operators = [f"{each.name} {'runs' if each.pid else 'HAS ENDED'}{each.tail()}" for each in self._operators]
        return "\n\n".join([self.scenario.describe(), self.replicas.describe(), *operators])


def _listed(items: list[Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def hint(step: int, path: Path, attempt: int = 1) -> dict[str, str]:
    """What a pod gets that resumes from *path*."""
    return {"HEALTHD_ATTEMPT": str(attempt), "HEALTHD_RESUME_FROM": str(path), "HEALTHD_RESUME_STEP": str(step)}


def _at(value: Any, path: list[str]) -> list[Any]:
    if not path:
        return [value]
    if not isinstance(value, dict):
        return []
    children = list(value.values()) if path[0] == "*" else [value.get(path[0])]
    return [found for child in children for found in _at(child, path[1:])]
