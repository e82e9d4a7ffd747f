"""
What the controller of each hand writes into the object of a request, by its sources: while it is at work, when it has
done what was asked, and when it has failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.lab.api import Json

_THEN = "2026-11-23T12:00:00Z"


@dataclass(frozen=True, kw_only=True)
class Said:
    """Each is a whole status. *failed* has one for each way to fail, by what healthd must say of it."""

    begun: Json = field(default_factory=dict)
    done: Json = field(default_factory=dict)
    failed: Mapping[str, Json] = field(default_factory=dict)

    @property
    def course(self) -> list[tuple[Json, bool, str]]:
        """One status after the other, and what healthd must read in each: whether it is done, and why it failed."""
        failed = [(status, False, why) for why, status in self.failed.items()]
        return [each for each in [(self.begun, False, ""), *failed, (self.done, True, "")] if each[0]]

    @property
    def signs(self) -> list[str]:
        """What of it healthd reads."""
        return [*(["done"] if self.done else []), *(["failed"] if self.failed else [])]


def _condition(kind: str, status: str, reason: str, message: str = "") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": _THEN}


def _with(*conditions: Json, **more: object) -> Json:
    return {"conditions": list(conditions), **more}


def _sent_and(ends_with: str, ended: str) -> Said:
    """RebootNode and TerminateNode: both conditions are Unknown at first, and False only when it is over."""
    sent, unknown = _condition("SignalSent", "True", "Succeeded", "request-1"), "Initializing"
    return Said(
        begun=_with(_condition("SignalSent", "Unknown", unknown), _condition(ends_with, "Unknown", unknown)),
        done=_with(sent, _condition(ends_with, "True", "Succeeded"), completionTime=_THEN),
        failed={
            "the cloud refused": _with(
                _condition("SignalSent", "False", "Failed", "the cloud refused"),
                _condition(ends_with, "Unknown", unknown),
                completionTime=_THEN,
            ),
            ended: _with(sent, _condition(ends_with, "False", "Timeout", ended), completionTime=_THEN),
        },
    )


_FINISHED = {"startTime": _THEN, "uncountedTerminatedPods": {}}


def _ended(phase: str, code: int, message: str) -> Json:
    """A pod of healthd's own hand, as its kubelet writes it."""
    state = {"terminated": {"exitCode": code, "message": message, "startedAt": _THEN, "finishedAt": _THEN}}
    container = {"name": "hand", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}
    return {"phase": phase, "containerStatuses": [container]}


SAYS = {
    "healthd-gpu-reset": Said(
        begun={"phase": "Running"},
        done={"phase": "Succeeded"},
        failed={
            "the reset was refused": _ended("Failed", 3, "the reset was refused"),
            "Pod was active on the node longer than the specified deadline": {
                "phase": "Failed",
                "reason": "DeadlineExceeded",
                "message": "Pod was active on the node longer than the specified deadline",
            },
        },
    ),
    "healthd-reboot": Said(
        begun={"phase": "Running"},
        failed={
            "the reboot was refused": _ended("Failed", 3, "the reboot was refused"),
            "systemctl reboot failed": _ended("Failed", 4, "systemctl reboot failed"),
        },
    ),
    "nvsentinel-gpu-reset": Said(
        begun=_with(_condition("Ready", "True", "ReadyForReset"), phase="InProgress"),
        done=_with(_condition("Complete", "True", "GPUResetSucceeded"), phase="Succeeded", completionTime=_THEN),
        failed={
            "status.phase is Failed": _with(
                _condition("Complete", "True", "ResetJobFailed"), phase="Failed", completionTime=_THEN
            )
        },
    ),
    "nvsentinel-reboot": _sent_and("NodeReady", "Node failed to return to ready state"),
    "nvsentinel-terminate": _sent_and("NodeTerminated", "Node failed to transition to not ready state"),
    "medik8s-self-node-remediation": Said(
        begun=_with(
            _condition("Processing", "True", "RemediationStarted"),
            _condition("Succeeded", "Unknown", "RemediationStarted"),
            phase="Pre-Reboot-Completed",
        ),
        done=_with(
            _condition("Processing", "False", "RemediationFinishedSuccessfully"),
            _condition("Succeeded", "True", "RemediationFinishedSuccessfully"),
            phase="Fencing-Completed",
        ),
        failed={
            "RemediationSkippedNodeNotFound": _with(
                _condition("Processing", "False", "RemediationSkippedNodeNotFound"),
                _condition("Succeeded", "False", "RemediationSkippedNodeNotFound"),
            )
        },
    ),
    "kured-sentinel": Said(
        failed={
            "back-off limit": _with(
                _condition("FailureTarget", "True", "BackoffLimitExceeded", "back-off limit"),
                _condition("Failed", "True", "BackoffLimitExceeded", "back-off limit"),
                **_FINISHED,
            )
        },
    ),
}
"""By hand. The others have no sign: another boot id or another machine is their proof."""
