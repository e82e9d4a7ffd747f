"""
What a recovery may ask the controller to do. Each act is idempotent: doing it twice is doing it once.
"""

from __future__ import annotations

from dataclasses import dataclass

from healthd.core.recovery.gang import StartHint


@dataclass(frozen=True, slots=True)
class StopGang:
    """Suspend the root, marked as this recovery's doing."""

    recovery: str


@dataclass(frozen=True, slots=True)
class ReleasePods:
    """Take our finalizer off pods whose end is proven and recorded."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemovePods:
    """Delete pods for good, without their kubelet: their end is proven, and their objects keep new ones from coming."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FindCheckpoint:
    """Verify the gang's checkpoints, newest first, and record the answer."""


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """Begin to verify the gang's checkpoints: the answer is wanted in a moment."""


@dataclass(frozen=True, slots=True)
class ClaimSpare:
    """Take *spare* out of the pool in place of *instead_of*."""

    spare: str
    instead_of: str


@dataclass(frozen=True, slots=True)
class StartGang:
    """Hand the hint to the root and let it run."""

    hint: StartHint


Action = StopGang | ReleasePods | RemovePods | FindCheckpoint | ReadAhead | ClaimSpare | StartGang
