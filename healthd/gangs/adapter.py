"""What every gang kind must offer. An adapter is one module; `healthd.gangs.ADAPTERS` is the table of them."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from healthd.cluster.port import Cluster
from healthd.core.gang import Root, StartHint
from healthd.core.objects import Pod, Slim

T = TypeVar("T", bound=Slim)


class GangAdapter(Protocol, Generic[T]):
    """
    How the roots of one kind are read, stopped and started.

    Writes carry the resourceVersion of the root that was decided on: a controller that was deposed, or that looked at
    an old state, gets a Conflict and changes nothing.
    """

    kind: type[T]

    def read(self, obj: T) -> Root:
        """The root as the decisions see it."""
        ...

    def root_name(self, pod: Pod) -> str | None:
        """The name of the root of this kind that *pod* belongs to, in the pod's own namespace."""
        ...

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Let all members end, marked as *recovery*'s doing. Raises Conflict, NotFound."""
        ...

    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Hand over the hint and let the gang run, in one write. Raises Conflict, NotFound."""
        ...
