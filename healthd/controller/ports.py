"""The controller's interfaces to what is outside the cluster: a gang's checkpoints, and its signs of life."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from healthd.core.api import ChosenCheckpoint, Pod, Recovery, RejectedCheckpoint
from healthd.core.checkpoint.verification import VerificationReport
from healthd.core.hang.silence import Silence
from healthd.core.recovery.gang import Root, WitnessReport, no_witness_report


class CheckpointAnswer(NamedTuple):
    """The newest checkpoint that will load, and the newer ones that will not."""

    found: ChosenCheckpoint | None
    rejected: Sequence[RejectedCheckpoint]
    pending: str = ""
    """Why there is no answer yet, when another process still works on it: ask again in a moment."""


class Checkpoints(Protocol):
    """Finds a gang's checkpoints."""

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: Recovery | None = None,
        doubted: Sequence[ChosenCheckpoint] = (),
    ) -> CheckpointAnswer:
        """
        The newest verified checkpoint. With *newer_than*, only steps beyond it are read. *recovery* is the caller's.

        A *doubted* checkpoint is taken only where there is no other, and never as a newer one. Raises OSError.
        """
        ...

    async def newest_step(self, root: Root) -> int | None:
        """The highest step by name, unverified: a cheap check of progress. Raises OSError."""
        ...


class Looker(Protocol):
    """Checks the checkpoints of running gangs, as far as headers and sizes show."""

    async def report(self, root: Root) -> VerificationReport | None:
        """The checkpoints that exist; None when this cannot be known, or not yet. Raises OSError."""
        ...


class Activity(Protocol):
    """Signs of life of running members."""

    def last(self, pods: Sequence[Pod]) -> datetime | None:
        """When any of *pods* last showed activity; None when this is not known."""
        ...

    def last_work(self, pods: Sequence[Pod]) -> datetime | None:
        """When any of *pods* last used a processor; None when this is not known."""
        ...

    def usual_work(self, pods: Sequence[Pod]) -> datetime | None:
        """When any of *pods* last worked as it usually does, by its rhythm; None when this is not known."""
        ...

    def inactive_for(self, pods: Sequence[Pod]) -> timedelta | None:
        """For how long all of *pods* have hung and done next to nothing; None when they do not, or it is not known."""
        ...

    def missed_since(self, moment: datetime) -> timedelta:
        """How much of the time since *moment* says nothing of the members, because healthd beside them did not run."""
        ...

    def silence(self, pods: Sequence[Pod]) -> Silence | None:
        """The silence of the gang of *pods*, if it hangs and is to be restarted for that; None also when unknown."""
        ...


class Witnesses(Protocol):
    """Sources that report broken hardware, such as the readers of kernel logs."""

    def ask(self, since: datetime) -> bool:
        """
        Ask them for all that they saw until now, unless it is already known until *since* or later. Returns whether an
        answer is on its way.
        """
        ...

    def witness_report(self, node: str) -> WitnessReport:
        """What they have reported about *node*, as far as is known."""
        ...


class UnknownWitnesses:
    """The witnesses run elsewhere: what they have reported so far is not known."""

    def ask(self, since: datetime) -> bool:  # noqa: ARG002 - the protocol's signature
        """False: they cannot be asked."""
        return False

    def witness_report(self, node: str) -> WitnessReport:
        """Not known."""
        return no_witness_report(node)


class NoActivity:
    """No source of signs of life: activity is not known."""

    def last(self, pods: Sequence[Pod]) -> datetime | None:  # noqa: ARG002 - the protocol's signature
        """None."""
        return None

    def last_work(self, pods: Sequence[Pod]) -> datetime | None:  # noqa: ARG002 - the protocol's signature
        """None."""
        return None

    def usual_work(self, pods: Sequence[Pod]) -> datetime | None:  # noqa: ARG002 - the protocol's signature
        """None."""
        return None

    def inactive_for(self, pods: Sequence[Pod]) -> timedelta | None:  # noqa: ARG002 - the protocol's signature
        """None."""
        return None

    def missed_since(self, moment: datetime) -> timedelta:  # noqa: ARG002 - the protocol's signature
        """None of it."""
        return timedelta(0)

    def silence(self, pods: Sequence[Pod]) -> Silence | None:  # noqa: ARG002 - the protocol's signature
        """None."""
        return None
