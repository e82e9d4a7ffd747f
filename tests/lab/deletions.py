"""
Definitions of kinds that are being deleted. No test has to wait for minutes, as a cluster may.

An API server that removes several definitions of one group finds the storage of some of them not ready ("storage is
(re)initializing", seen with Kubernetes 1.37), and tries again later and later: for up to five minutes here. When such a
definition changes, it tries at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.lab.api import ApiError, Json
from tests.lab.control_plane import ControlPlane

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_EVERY = 1.0
"""Seconds."""


@contextmanager
def deleted_soon(control_plane: ControlPlane) -> Iterator[None]:
    """Until the block ends, have the API server try again to delete what it failed to delete."""
    is_over = threading.Event()

    def touch() -> None:
        tries = 0
        while not is_over.wait(_EVERY):
            tries += 1
            for each in filter(_is_stuck, control_plane.api.get(_DEFINITIONS)["items"]):
                note = {"metadata": {"annotations": {"tries": str(tries)}}}
                with suppress(ApiError):  # it is gone by now
                    control_plane.api.patch(f"{_DEFINITIONS}/{each['metadata']['name']}", note)

    thread = threading.Thread(target=touch, name="deleted definitions")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _is_stuck(definition: Json) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    reasons = {each["type"]: each.get("reason") for each in conditions}
    return "deletionTimestamp" in definition["metadata"] and reasons.get("Terminating") == "InstanceDeletionFailed"
