"""
The actions that a recovery can ask the controller to do. Each action is idempotent: to do it twice is to do it once.
"""

from __future__ import annotations

from dataclasses import dataclass

from healthd.core.recovery.gang import StartHint


@dataclass(frozen=True, slots=True)
class StopGang:
    """Suspend the root, and record on it that this recovery did so."""

    recovery: str


@dataclass(frozen=True, slots=True)
class ReleasePods:
    """Remove healthd's finalizer from pods whose end is proven and recorded."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemovePods:
    """Force-delete pods, without their kubelet: their end is proven, and their objects block the new pods."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClaimSpare:
    """Take the node *spare* out of the pool, to replace the node *instead_of*."""

    spare: str
    instead_of: str


@dataclass(frozen=True, slots=True)
class StartGang:
    """Write the hint to the root and resume it."""

    hint: StartHint


@dataclass(frozen=True, slots=True)
class RemoveRoot:
    """Keep a copy of the root that failed for good, and delete it after all that it made."""


@dataclass(frozen=True, slots=True)
class MakeRoot:
    """Make the root again from its copy, stopped by this recovery."""


Action = StopGang | ReleasePods | RemovePods | ClaimSpare | StartGang | RemoveRoot | MakeRoot
