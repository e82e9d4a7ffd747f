"""Where one hand is tried: its node, what it patches, and the calls that are made in healthd's and others' place."""

from __future__ import annotations

import itertools
from http import HTTPStatus
from typing import Any

from healthd.core.api.remediations import RungAttempt
from healthd.core.remediation.hands import requests
from healthd.core.remediation.hands.description import NAMESPACE, Verb
from healthd.core.remediation.hands.placeholders import facts_of
from healthd.core.remediation.hands.requests import Written
from tests.builders import a_node
from tests.fakes import START
from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane
from tests.remediation.trials import ANNOTATIONS, BEFORE, NODE, PROVIDER_ID, Trial

BOOT = "11111111-2222-3333-4444-555555555555"
_NODE_PATH = f"/api/v1/nodes/{NODE}"
_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
_STRICT = "fieldValidation=Strict"
_ATTEMPTS = itertools.count(1_795_000_000)
"""Numbers of attempts are seconds since 1970."""
_TRIES = 20
"""The lab's own controller of Jobs writes to a Job a few times at first."""


class Stage:
    """One trial. Nothing of an earlier one is left."""

    def __init__(self, control_plane: ControlPlane, trial: Trial) -> None:
        self.control_plane, self.trial, self.hand = control_plane, trial, trial.hand
        self._api = control_plane.api
        self.labels = {trial.label: "Schedulable"} if trial.label else {}
        self.api = "v1" if trial.hand.kind == "Node" else trial.api
        number = next(_ATTEMPTS)
        self._attempt = RungAttempt(
            number=number, fault="f", rung=self.hand.rung, hand=self.hand.name, why="xid-79 asks for it", at=START
        )
        node = a_node(NODE, uid=self._new_node(), labels=self.labels, annotations=ANNOTATIONS)
        image = "example.com/healthd:1"
        self._facts = facts_of(node, PROVIDER_ID, attempt=number, rung=self.hand.rung, image=image, boot_id=BOOT)
        if self.hand.namespace:
            control_plane.ensure_namespace(self.request().target.namespace)
        self._make_what_is_patched()

    def served(self) -> set[tuple[str, str]]:
        """Of the API that shows that the hand's controller is there: versions and kinds, and all namespaces."""
        found = (
            {(self.trial.api, each["kind"]) for each in self._resources(self.trial.api)} if self.trial.api else set()
        )
        return found | {(NAMESPACE, each["metadata"]["name"]) for each in self._api.get("/api/v1/namespaces")["items"]}

    def request(self) -> Written:
        """As the core has it."""
        return requests.request_of(self.hand, self._attempt, self.api, self._facts)

    def confirmation(self) -> str:
        """What speaks against the object that is there, by the core."""
        return requests.confirmation(self.hand, self.read(), self._facts) if self.hand.confirm else ""

    def write(self, written: Written) -> None:
        """Raises ApiError where the server does not accept it as it is."""
        if written.verb is Verb.CREATE:
            self._api.create(f"{self._path(named=False)}?{_STRICT}", written.body)
        elif written.verb is Verb.CONDITION:
            times = {"lastTransitionTime": "2026-11-23T12:00:00Z", "lastHeartbeatTime": "2026-11-23T12:00:00Z"}
            status = {"status": {"conditions": [{**written.body, **times}]}}
            self._api.call("PATCH", f"{_NODE_PATH}/status?{_STRICT}", status, kind=_STRATEGIC)
        else:
            self._api.call("PATCH", f"{self._path()}?{_STRICT}", written.body, kind=_MERGE)

    def says(self, status: Json) -> None:
        """The controller of the hand writes *status* in place of the one before, though another writes beside it."""
        for _ in range(_TRIES):
            try:
                before = self.read()
                body = {**before, "status": status | _kept(before.get("status", {}))}
                self._api.call("PUT", f"{self._path()}/status?{_STRICT}", body)
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
            else:
                return
        raise AssertionError(f"{self._path()} changes without an end")

    def signs(self) -> tuple[bool, str] | None:
        """Whether it is done, and why it failed, by the core from the object as the server answers it."""
        seen = requests.request_seen(self.hand, self._attempt, self.read())
        return (seen.claims_done, seen.failed) if seen is not None else None

    def take_back(self) -> None:
        """As the core has it."""
        withdrawal = requests.withdrawal_of(self.hand, self.api, self._facts)
        if withdrawal.verb is Verb.CREATE:
            self._api.delete(f"{self._path()}?propagationPolicy=Background&gracePeriodSeconds=0")
            self.control_plane.wait_until_deleted(self._path(), limit=20)
        else:
            self.write(withdrawal)

    def read(self) -> Json:
        """The object that is written. Raises ApiError."""
        return self._api.get(self._path())

    def exists(self) -> bool:
        """Whether that object is there."""
        return self.control_plane.has(self._path())

    def _path(self, *, named: bool = True) -> str:
        target = self.request().target
        resource = next(
            each for each in self._resources(self.api) if each["kind"] == target.kind and "/" not in each["name"]
        )
        root = "/api/v1" if self.api == "v1" else f"/apis/{self.api}"
        place = f"/namespaces/{target.namespace}" if resource["namespaced"] else ""
        return f"{root}{place}/{resource['name']}" + (f"/{target.name}" if named else "")

    def _resources(self, api: str) -> list[dict[str, Any]]:
        resources: list[dict[str, Any]] = self._api.get("/api/v1" if api == "v1" else f"/apis/{api}")["resources"]
        return resources

    def _new_node(self) -> str:
        """Its uid."""
        if self.control_plane.has(_NODE_PATH):
            self._api.delete(_NODE_PATH)
        metadata = {"name": NODE, "labels": self.labels, "annotations": ANNOTATIONS}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"providerID": PROVIDER_ID}}
        return str(self._api.create("/api/v1/nodes", body)["metadata"]["uid"])

    def _make_what_is_patched(self) -> None:
        before = BEFORE.get((self.api, self.hand.kind))
        if before is None or self.exists():
            return
        kind = {"apiVersion": self.api, "kind": self.hand.kind}
        self._api.create(f"{self._path(named=False)}?{_STRICT}", {**kind, **before})
        if "status" in before:
            self.says(before["status"])


def _kept(status: Json) -> Json:
    """What no later write may change: when a Job has started, which the lab's controller may have said first."""
    return {key: status[key] for key in ("startTime",) if key in status}


def refusal(stage: Stage, written: Written) -> str:
    """Why the server refuses *written*; empty: it does not."""
    try:
        stage.write(written)
    except ApiError as error:
        return str(error)
    return ""
