"""What the site has to reset, reboot and replace nodes: controllers that help, do nothing, lie, fail, or are slow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from healthd.cluster.port import NotFound
from healthd.controller.remediation.discovery import type_of
from healthd.core.api import CustomObject, Node
from healthd.core.api.names import ANNOTATION_REQUEST
from healthd.core.api.remediations import Rung
from healthd.core.remediation.hands.description import HandDescription
from healthd.core.remediation.hands.shipped import read_hands
from tests.simulation.ground_truth import GroundTruth
from tests.simulation.remediation.hosts import Hosts
from tests.simulation.remediation.labels import HOLDS, ON, PAUSED, PLUGIN
from tests.simulation.step_scheduler import at_once

API = "site.example.com/v1"
NOTE, TAINT, CONDITION = "example.com/reboot", "example.com/reboot", "RebootWanted"
CREATED = {
    Rung.RESET_GPU: type_of(API, "Reset", namespaced=False),
    Rung.REBOOT: type_of(API, "Reboot", namespaced=False),
    Rung.POWER_CYCLE: type_of(API, "PowerCycle", namespaced=False),
    Rung.REPLACE: type_of(API, "Replacement", namespaced=False),
}
RUNG_OF: dict[type[Any], Rung] = {kind: rung for rung, kind in CREATED.items()}
BEHAVIOURS = ("helps",) * 6 + ("does nothing", "lies", "fails", "slow", "takes its request away")
TIMEOUT = timedelta(minutes=10)
_CREATES = """
- name: {name}
  rung: {rung}
  verb: create
  api: [site.example.com/v1]
  kind: {kind}
  object: healthd-${{node}}-${{attempt}}
  body: {{spec: {{host: "${{node}}"}}}}
  timeout: 10m
  failed: status.phase=Failed
"""
_OTHERS = f"""
- name: site-note
  rung: reboot
  verb: patch
  body: {{metadata: {{annotations: {{{NOTE}: "yes"}}}}}}
  timeout: 10m
- name: site-taint
  rung: reboot
  verb: taint
  body: {{key: {TAINT}, value: wanted, effect: NoSchedule}}
  timeout: 10m
- name: site-condition
  rung: reboot
  verb: condition
  body: {{type: {CONDITION}, status: "True", reason: Healthd}}
  timeout: 10m
- name: site-call
  rung: reboot
  verb: call
  object: https://power.example.com/reboot
  secret: /etc/healthd/power-key
  timeout: 10m
"""
_LABELS = f"""
  labels:
    - {{key: {HOLDS}, value: "reset.${{boot_id}}"}}
    - {{key: {PLUGIN}, instead_of: "{ON}", value: {PAUSED}}}
"""
"""A reset needs the GPUs for itself."""
REBOOTS = ("site-reboot", "site-reboot", "site-note", "site-taint", "site-condition", "site-call")
"""Hands that reboot, one for each verb."""


@cache
def all_hands() -> dict[str, HandDescription]:
    """By name."""
    made = "".join(_CREATES.format(name=hand_of(rung), rung=rung, kind=kind.__name__) for rung, kind in CREATED.items())
    made = made.replace("timeout: 10m\n  failed", f"timeout: 10m\n  done: status.phase=Done\n{_LABELS}  failed", 1)
    return {hand.name: hand for hand in read_hands(made + _OTHERS)}


def hand_of(rung: Rung) -> str:
    """The hand of the site that does *rung* by an object of its own."""
    return f"site-{rung.replace('_', '-')}"


@dataclass(frozen=True)
class Asked:
    """A request that is in the cluster. *key* is one for each request; *obj*: what was created for it."""

    key: str
    node: str
    rung: Rung
    obj: CustomObject | None = None


@dataclass
class Work:
    """What becomes of a request."""

    behaviour: str
    due: datetime
    is_done: bool = False


class Site:
    """The controllers behind the hands. *done* hears of each machine that they rebooted or replaced."""

    def __init__(
        self, ground_truth: GroundTruth, hosts: Hosts, dice: random.Random, done: Callable[[str, Rung], None]
    ) -> None:
        self._truth = ground_truth.seen_by("site")
        self._hosts = hosts
        self._dice = dice
        self._done = done
        self._work: dict[str, Work] = {}
        self._calls: list[Asked] = []
        self.is_good = False
        """Everything that is asked for helps."""

    async def post(self, hand: HandDescription, body: dict[str, Any]) -> None:
        """Somebody calls the webhook. The same attempt means the same request."""
        self._calls.append(Asked(f"call {body['node']} {body['attempt']}", body["node"], Rung(body["rung"])))

    def work(self, now: datetime) -> None:
        """Do what is due."""
        for asked in list(self._asked()):
            work = self._work.get(asked.key)
            if work is None:
                behaviour = "helps" if self.is_good else self._dice.choice(BEHAVIOURS)
                minutes = 15 if behaviour == "slow" else self._dice.choice((0, 1, 3))
                work = self._work[asked.key] = Work(behaviour, now + timedelta(minutes=minutes))
            if not work.is_done and now >= work.due:
                work.is_done = True
                self._acts(asked, work.behaviour, now)

    def _asked(self) -> Iterator[Asked]:
        for kind, rung in RUNG_OF.items():
            for obj in at_once(self._truth.list(kind)).items:
                yield Asked(f"{kind.__name__} {obj.metadata.name}", obj.spec["host"], rung, obj)
        for node in at_once(self._truth.list(Node)).items:
            if mark := mark_on(node):
                yield Asked(f"mark {node.metadata.name} {mark}", node.metadata.name, Rung.REBOOT)
        yield from self._calls

    def _acts(self, asked: Asked, behaviour: str, now: datetime) -> None:
        if asked.node not in self._hosts.all:
            return
        if behaviour in ("helps", "slow", "takes its request away"):
            self._hosts.does(asked.node, asked.rung, now)
            self._done(asked.node, asked.rung)
        if asked.obj is None or behaviour == "does nothing":
            return
        kind, name = type(asked.obj), asked.obj.metadata.name
        try:
            if behaviour == "takes its request away":
                at_once(self._truth.delete(kind, name))
                return
            phase = {"status": {"phase": "Failed" if behaviour == "fails" else "Done"}}
            at_once(self._truth.patch(kind, name, phase, subresource="status"))
        except NotFound:
            return


def mark_on(node: Node) -> str:
    """The attempt that is asked for on the Node itself; empty: none."""
    notes = node.metadata.annotations
    if NOTE in notes or any(taint.key == TAINT for taint in node.spec.taints):
        return notes.get(ANNOTATION_REQUEST, "")
    wanted = next((each for each in node.status.conditions if each.type == CONDITION and each.status == "True"), None)
    return wanted.message.split(":")[0].rpartition(" ")[2] if wanted is not None else ""
