"""
Bugs planted on purpose, to show that the simulation would find them. Each replaces one program by one that is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from healthd.agent.agent import Agent
from healthd.cluster.nodes import patch_node
from healthd.cluster.port import Cluster
from healthd.controller.controller import Controller
from healthd.core import quarantine
from healthd.core.objects import ANNOTATION_QUARANTINE, Attempt, FencedPod, Node, Recovery
from tests.simulation.simulation import Parts


class _Through:
    """A cluster between a program and the real one, which passes everything on."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


class _ProvesEverything(_Through):
    """Every pod of a recovery that is written counts as proven gone. The answer shows what was asked for."""

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        if kind is not Recovery or not patch.get("status", {}).get("pods"):
            return await self._cluster.patch(kind, name, patch, **where)
        pods = patch["status"]["pods"]
        proven = [{**pod, "proof": pod.get("proof") or "surely"} for pod in pods]
        written = await self._cluster.patch(kind, name, {"status": {**patch["status"], "pods": proven}}, **where)
        return replace(written, status=replace(written.status, pods=msgspec.convert(pods, list[FencedPod])))


class _ForgetsIntent(_Through):
    """What a recovery is about to start never reaches its record, though the answer says so."""

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        if kind is not Recovery or "attempts" not in patch.get("status", {}):
            return await self._cluster.patch(kind, name, patch, **where)
        attempts = msgspec.convert(patch["status"]["attempts"], list[Attempt])
        kept = {key: value for key, value in patch["status"].items() if key != "attempts"}
        written = await self._cluster.patch(kind, name, {"status": kept}, **where)
        return replace(written, status=replace(written.status, attempts=attempts))


class _ForgetsPreconditions(_Through):
    """Writes to whatever there is now, not to what was decided on."""

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        return await self._cluster.patch(kind, name, patch, **{**where, "resource_version": ""})


class _CountsThenCordons(Agent):
    """Lists the quarantined nodes, and cordons when there are few enough: two agents may count at the same time."""

    async def _quarantine(self, node: Node, record: quarantine.Record, now: datetime) -> Node:
        nodes = (await self._cluster.list(Node)).items
        out = sum(ANNOTATION_QUARANTINE in other.metadata.annotations for other in nodes)
        if out >= self._policy.budget:
            return node
        return await patch_node(self._cluster, node, quarantine.cordon_patch(node, record))


class _ResumesFromTorn:
    """Takes the newest checkpoint by name, whether or not it is whole."""

    def __init__(self, checkpoints: Any) -> None:
        self._checkpoints = checkpoints

    async def latest(self, root: Any, newer_than: int | None = None, recovery: object = None) -> Any:
        answer = await self._checkpoints.latest(root, newer_than, recovery)
        if not answer.rejected:
            return answer
        newest = answer.rejected[0]
        found = replace(answer.found, path=newest.path, step=newest.step) if answer.found else None
        return answer._replace(found=found)

    async def newest_step(self, root: Any) -> Any:
        return await self._checkpoints.newest_step(root)


def _controller(through: type[_Through]) -> Any:
    def make(cluster: Cluster, *rest: Any, **options: Any) -> Controller:
        return Controller(through(cluster), *rest, **options)

    return make


def _agent(through: type[_Through]) -> Any:
    def make(name: str, cluster: Cluster, *rest: Any, **options: Any) -> Agent:
        return Agent(name, through(cluster), *rest, **options)

    return make


def _careless(cluster: Cluster, clock: Any, adapters: Any, checkpoints: Any, **options: Any) -> Controller:
    return Controller(cluster, clock, adapters, _ResumesFromTorn(checkpoints), **options)


PLANTS: dict[str, Parts] = {
    "skip-fence": Parts(controller=_controller(_ProvesEverything)),
    "forget-intent": Parts(controller=_controller(_ForgetsIntent)),
    "forget-preconditions": Parts(agent=_agent(_ForgetsPreconditions), controller=_controller(_ForgetsPreconditions)),
    "list-then-write-budget": Parts(agent=_CountsThenCordons),
    "resume-from-torn": Parts(controller=_careless),
}

__all__ = ["PLANTS"]
