"""What the controller needs from outside the cluster: a gang's checkpoints, and its signs of life."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from healthd.core.api import ChosenCheckpoint, Pod, Recovery, RejectedCheckpoint
from healthd.core.checkpoint.verification import Report
from healthd.core.recovery.gang import Root, WitnessReport, no_witness_report


class CheckpointAnswer(NamedTuple):
    """The newest checkpoint that will load, and the newer ones that will not."""

    found: ChosenCheckpoint | None
    rejected: Sequence[RejectedCheckpoint]
    pending: str = ""
    """Why there is no answer yet, where it is worked on elsewhere: ask again in a moment."""


class Checkpoints(Protocol):
    """Where a gang's checkpoints are looked up."""

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: Recovery | None = None,
        doubted: Sequence[ChosenCheckpoint] = (),
    ) -> CheckpointAnswer:
        """
        The newest verified checkpoint; with *newer_than* only steps beyond it are looked at. *recovery* is who asks.

        One that is *doubted* is taken only where there is no other, and never as a newer one. Raises OSError.
        """
        ...

    async def newest_step(self, root: Root) -> int | None:
        """The highest step that there is by name, unverified: a cheap look at progress. Raises OSError."""
        ...


class Looker(Protocol):
    """Where the checkpoints of gangs that run are looked at, as far as headers and sizes tell."""

    async def report(self, root: Root) -> Report | None:
        """What there is; None where it cannot be told, or not yet. Raises OSError."""
        ...


class Activity(Protocol):
    """Signs of life of running members."""

    def last(self, pods: Sequence[Pod]) -> datetime | None:
        """When any of *pods* was last seen doing something; None where nobody can tell."""
        ...

    def last_work(self, pods: Sequence[Pod]) -> datetime | None:
        """When any of *pods* was last seen to use a processor; None where nobody can tell."""
        ...


class Witnesses(Protocol):
    """What tells of broken hardware, such as the readers of kernel logs."""

    def ask(self, since: datetime) -> bool:
        """
        Have them tell what they saw until now, unless that is known until *since* or later. Whether there is an answer
        on its way.
        """
        ...

    def heard(self, node: str) -> WitnessReport:
        """What is known to have been told of *node*."""
        ...


class UnknownWitnesses:
    """They are elsewhere: what they have told so far is not known."""

    def ask(self, since: datetime) -> bool:  # noqa: ARG002 - the protocol's signature
        """They cannot be asked."""
        return False

    def heard(self, node: str) -> WitnessReport:
        """Not known."""
        return no_witness_report(node)


class NoActivity:
    """Nobody can tell."""

    def last(self, pods: Sequence[Pod]) -> datetime | None:  # noqa: ARG002 - the protocol's signature
        """None."""
        return None

    def last_work(self, pods: Sequence[Pod]) -> datetime | None:  # noqa: ARG002 - the protocol's signature
        """None."""
        return None
