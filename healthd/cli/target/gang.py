"""The gang that a command is about, as it is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from healthd.cli.errors import UserError
from healthd.cluster.port import Cluster, Forbidden, NotFound
from healthd.core.api import GangRef
from healthd.core.recovery.gang import Root
from healthd.core.recovery.recovery_status import gang_text, kind_named
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.kinds import ALL


async def gang_of(cluster: Cluster, ref: GangRef) -> Root | None:
    """The gang that a recovery names; None where it is gone, or another one has its name. Raises ClusterError."""
    adapter = ALL.get(ref.kind)
    if adapter is None:
        return None
    found = await _roots(cluster, adapter, ref.name, ref.namespace)
    return next((root for root in found if root.ref.uid == ref.uid), None)


async def gang_named(
    cluster: Cluster,
    given: str,
    namespace: str | None,
    adapters: Mapping[str, GangAdapter[Any]] = ALL,
) -> Root | None:
    """The gang that a user calls *given*, `job/llama` or `llama`, or None. Raises UserError where it may be several."""
    spelt, slash, rest = given.partition("/")
    kinds = [kind for kind in adapters if not slash or kind.lower() == kind_named(spelt)]
    name = rest if slash else given
    found = [root for kind in kinds for root in await _roots(cluster, adapters[kind], name, namespace)]
    if len(found) > 1:
        candidates = ", ".join(sorted(f"{gang_text(root.ref)} in {root.ref.namespace}" for root in found))
        raise UserError(f"{given!r} could be {candidates}; say which, with KIND/NAME and -n NAMESPACE")
    return found[0] if found else None


async def _roots(cluster: Cluster, adapter: GangAdapter[Any], name: str, namespace: str | None) -> Sequence[Root]:
    """
    The roots of this name. A root that may not be read, or a kind that this cluster does not have, counts as missing.
    """
    try:
        listed = await cluster.list(adapter.kind, namespace=namespace, fields={"metadata.name": name})
    except (NotFound, Forbidden):
        return []
    roots = [adapter.read(each) for each in listed.items]
    return [await adapter.complete(cluster, root) for root in roots if root is not None]
