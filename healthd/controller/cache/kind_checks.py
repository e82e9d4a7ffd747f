"""Whether gangs of a kind can be guarded: the cluster has the kind, and the controller its rights to it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import structlog

from healthd.cluster.port import AccessReader, Cluster, ClusterError, Forbidden, KindAccess, NotFound
from healthd.core.api import RESOURCES, CustomObject, Node, NodeHealth, Pod, Recovery, Slim, Workload
from healthd.core.config.gang_kinds import STATUS_VERB, VERBS
from healthd.gangs.kinds.components import COMPONENTS

log = structlog.get_logger()

MUST_HAVE = frozenset({Node, NodeHealth, Recovery, Pod})
"""healthd cannot work without these kinds, and asks no questions about them: NodeHealth and Recovery are its own."""
MATCHES_NOTHING = {"healthd.dev/none": "none"}
"""Selects nothing, so the request that checks whether a kind is installed has a small answer."""


class Absence(StrEnum):
    """Why the gangs of a kind cannot be guarded."""

    UNKNOWN = "unknown"
    """The cluster does not have the kind."""
    FORBIDDEN = "forbidden"
    """The controller lacks rights."""


class KindCheck(NamedTuple):
    """What the cluster says of a kind; *absence* None: its gangs can be guarded."""

    absence: Absence | None = None
    missing: tuple[str, ...] = ()
    """The verbs that the controller lacks."""


_WHOLE = KindAccess(is_served=True)


def absences(kind: type[Slim]) -> tuple[type[ClusterError], ...]:
    """The errors by which the cluster says that healthd cannot guard gangs of this kind."""
    if kind in MUST_HAVE:
        return ()
    return (NotFound, Forbidden) if is_of_others(kind) else (NotFound,)


def is_of_others(kind: type[Slim]) -> bool:
    """Whether a component grants the rights to it, and not what healthd is installed with."""
    return issubclass(kind, CustomObject | Workload)


class KindChecks:
    """Asks *cluster*, and *access* where there is one: without it a kind that is forbidden may also be absent."""

    def __init__(self, cluster: Cluster, access: AccessReader | None) -> None:
        self._cluster = cluster
        self._access = access

    async def check(self, kind: type[Slim]) -> KindCheck:
        """Raises nothing: what cannot be asked is found out by the informer, which reports it."""
        if kind in MUST_HAVE:
            return KindCheck()
        access = await self._access_to(kind) if is_of_others(kind) else _WHOLE
        if not access.is_served:
            return KindCheck(Absence.UNKNOWN)
        return KindCheck(Absence.FORBIDDEN, access.missing) if access.missing else await self._listed(kind)

    async def _access_to(self, kind: type[Slim]) -> KindAccess:
        verbs = (*VERBS, STATUS_VERB) if RESOURCES[kind].writes_status else VERBS
        try:
            return await self._access.access_to(kind, verbs) if self._access else _WHOLE
        except ClusterError:
            return _WHOLE

    async def _listed(self, kind: type[Slim]) -> KindCheck:
        where = None if is_of_others(kind) else "default"
        try:
            await self._cluster.list(kind, namespace=where, labels=MATCHES_NOTHING)
        except absences(kind) as error:
            return KindCheck(Absence.UNKNOWN if isinstance(error, NotFound) else Absence.FORBIDDEN)
        except ClusterError as error:
            log.info("kind.asked", kind=RESOURCES[kind].name, error=str(error))  # the informer reports it
        return KindCheck()


class ForbiddenKinds:
    """Says once that rights to a kind are missing, in the log and by *show*, until they are there."""

    def __init__(self, show: Callable[[str, bool], None]) -> None:
        self._show = show
        self._said: dict[type[Slim], KindCheck] = {}

    def report(self, kind: type[Slim], check: KindCheck) -> None:
        """Nothing is said of a kind that is absent: most clusters have few of them."""
        if self._said.get(kind, KindCheck()) == check:
            return
        self._said[kind] = check
        resource = RESOURCES[kind]
        self._show(resource.alias.lower() or resource.plural, check.absence is Absence.FORBIDDEN)
        if check.absence is Absence.FORBIDDEN:
            log.warning(
                "kind.forbidden",
                kind=resource.name,
                missing=", ".join(check.missing) or "list",
                note=_note(kind),
            )


def _note(kind: type[Slim]) -> str:
    remedy = _remedy(RESOURCES[kind].name)
    if kind is Workload:
        return f"gangs in a queue of Kueue are not guarded: {remedy}"
    return f"gangs of this kind are not guarded: {remedy}, or name the kind in gangs.off"


def _remedy(kind: str) -> str:
    component = COMPONENTS.get(kind)
    return f"apply deploy/components/{component}" if component else "grant the controller these rights"
