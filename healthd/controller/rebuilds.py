"""
Makes the root of a gang again that failed for good (`healthd.core.recovery.rebuilding` decides that).

The copy of the root is kept in healthd's own namespace, where only healthd writes: nothing is ever created that did not
stand in that namespace, under that name, admitted by the API server for its owner. Before anything is deleted, dry runs
ask the API server whether the copy would be admitted again, from healthd.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import structlog

from healthd.cluster.port import AlreadyExists, Cluster, ClusterError, Conflict, Forbidden, Invalid, NotFound, Refused
from healthd.core.api import CopiedRoot, ObjectMeta, Recovery, RootCopy
from healthd.core.api.model import ENDED
from healthd.core.recovery.gang import RebuildRead, Root, RootOutcome
from healthd.core.recovery.rebuilding import is_being_rebuilt
from healthd.core.untrusted import InvalidText
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.rebuilding import RebuildRules, copied, made_again, read_copy

log = structlog.get_logger()

COMPONENT = "deploy/components/rebuild"
CLEARED_EVERY = timedelta(minutes=10)
"""How often copies are looked for that nothing needs: one is deleted as soon as its root was made again."""


class Rebuilds:
    """Copies, deletes and makes roots. *namespace* is healthd's own; empty: it has none, and nothing is made again."""

    def __init__(self, cluster: Cluster, adapters: Mapping[str, GangAdapter[Any]], namespace: str) -> None:
        self._cluster = cluster
        self._adapters = adapters
        self._namespace = namespace
        self._cleared: datetime | None = None

    # Reads ------------------------------------------------------------------------------------------------------------

    async def read(self, recovery: Recovery, root: Root | None) -> tuple[Root | None, RebuildRead | None]:
        """
        The root to decide on, and what there is to know about making it again. *root* was freshly read.

        A root that was deleted to be made again is as its copy shows it: stopped by *recovery*. Raises ClusterError.
        """
        if root is not None and not root.deleting:
            return root, RebuildRead(refused=await self._refusal(root)) if _may_be_rebuilt(root) else None
        copy = await self._copy(recovery) if is_being_rebuilt(recovery.status) else None
        if copy is None:
            return root, None
        return self._remembered(copy, recovery), await self._place_of(copy, recovery)

    async def _copy(self, recovery: Recovery) -> RootCopy | None:
        """The copy of the gang's root. One of another gang is none, whatever the recovery says."""
        if not self._namespace or recovery.status.rebuild is None:
            return None
        try:
            copy = await self._cluster.get(RootCopy, recovery.status.rebuild.uid, self._namespace)
        except NotFound:
            return None
        is_its = (copy.spec.gang, copy.spec.recovery) == (recovery.spec.gang, recovery.metadata.name)
        return copy if is_its else None

    def _remembered(self, copy: RootCopy, recovery: Recovery) -> Root:
        gang, adapter = copy.spec.gang, self._adapters[copy.spec.gang.kind]
        manifest = _readable(copy)
        meta = {**manifest["metadata"], "name": gang.name, "namespace": gang.namespace, "uid": gang.uid}
        obj: Any = msgspec.convert({"metadata": meta, "spec": manifest["spec"]}, adapter.kind)
        root = adapter.read_any(obj)
        return dataclasses.replace(
            root, suspended=True, stopped=True, stopped_by=recovery.metadata.name, edited_since_stop=False
        )

    async def _place_of(self, copy: RootCopy, recovery: Recovery) -> RebuildRead:
        """What has the name of the root now; where nothing has, whether its copy would be admitted."""
        gang, adapter = copy.spec.gang, self._adapters[copy.spec.gang.kind]
        try:
            found = await self._cluster.get(adapter.kind, adapter.object_name(gang), gang.namespace)
        except NotFound:
            made = _made(copy, recovery.metadata.name, adapter)
            return RebuildRead(is_gone=True, refused=await self._missing(self._cluster.create(made, dry_run=True)))
        there = adapter.read_any(found)
        return RebuildRead(successor=there) if there.ref.uid != gang.uid else RebuildRead()

    async def _refusal(self, root: Root) -> str:
        """Why the API server, or healthd itself, would not make *root* again; empty: it would."""
        if not self._namespace:
            return "this healthd has no namespace of its own to keep a copy in"
        try:
            copy = await self._copy_of(root, recovery="")
        except InvalidText as why:
            return str(why)
        adapter = self._adapters[root.ref.kind]
        made, name = _made(copy, "dry-run", adapter), adapter.object_name(root.ref)
        deletion = partial(self._cluster.delete, adapter.kind, name, namespace=root.ref.namespace, uid=root.ref.uid)
        with suppress(NotFound):  # by the deletion: its user was faster, and the next read shows that
            return (
                await self._missing(self._cluster.create(copy, dry_run=True))
                or await self._missing(self._cluster.create(made, dry_run=True))
                or await self._refused(deletion(dry_run=True))
            )
        return ""

    async def _missing(self, tried: Awaitable[Any]) -> str:
        """Likewise of a creation, for which the kind has to be there."""
        try:
            return await self._refused(tried)
        except NotFound as why:
            return f"{why}; apply deploy/crds.yaml of this version"

    async def _refused(self, tried: Awaitable[Any]) -> str:
        """Why a dry run was refused. That a name is taken is the last of all checks. Raises NotFound."""
        try:
            await tried
        except (AlreadyExists, Conflict):
            return ""
        except Forbidden as why:
            return f"{why} ({COMPONENT} grants the controller what it needs)"
        except Invalid as why:
            return str(why)
        return ""

    # Writes -----------------------------------------------------------------------------------------------------------

    async def remove(self, root: Root, recovery: Recovery) -> None:
        """
        Keep a copy of *root*, and delete it after all that it made. Raises ClusterError.

        The version that was copied is the one that is deleted. A root that somebody else deleted first stays deleted:
        its copy goes, too.
        """
        adapter, gang = self._adapters[root.ref.kind], root.ref
        try:
            copy = await self._copy_of(root, recovery.metadata.name)
        except InvalidText as why:
            raise Invalid(str(why)) from why
        await self._keep(copy)
        try:
            await self._cluster.delete(
                adapter.kind,
                adapter.object_name(gang),
                namespace=gang.namespace,
                uid=gang.uid,
                resource_version=copy.spec.version,
                dependents_first=True,
            )
        except (NotFound, Conflict, Refused):
            await self._forget(gang.uid)
            raise
        log.warning("root.removed", gang=gang.name, namespace=gang.namespace, kind=gang.kind, copy=gang.uid)

    async def _copy_of(self, root: Root, recovery: str) -> RootCopy:
        """*root* as it is now. Raises InvalidText, Conflict."""
        adapter = self._adapters[root.ref.kind]
        rules, manifest = _rules(adapter), adapter.manifest
        if manifest is None:
            raise InvalidText(f"healthd makes no {root.ref.kind} again")
        obj: Any = await self._cluster.get(manifest, adapter.object_name(root.ref), root.ref.namespace)
        meta: ObjectMeta = obj.metadata
        if (meta.uid, meta.resource_version) != (root.ref.uid, root.resource_version):
            raise Conflict(f"{root.ref.kind} {root.ref.name} has been changed")
        return RootCopy(
            metadata=ObjectMeta(name=root.ref.uid, namespace=self._namespace),
            spec=CopiedRoot(
                gang=root.ref,
                recovery=recovery,
                version=meta.resource_version,
                manifest=copied(meta, obj.spec, rules),
            ),
        )

    async def _keep(self, copy: RootCopy) -> None:
        try:
            await self._cluster.create(copy)
        except AlreadyExists:  # of a try that ended before the deletion
            patch = {"spec": msgspec.to_builtins(copy.spec)}
            await self._cluster.patch(RootCopy, copy.metadata.name, patch, namespace=self._namespace)

    async def make(self, recovery: Recovery) -> None:
        """Make the root of *recovery* again from its copy. Its name may be taken by now. Raises ClusterError."""
        copy = await self._copy(recovery)
        if copy is None:
            return
        with suppress(AlreadyExists):
            made = _made(copy, recovery.metadata.name, self._adapters[copy.spec.gang.kind])
            await self._cluster.create(made)
            gang = copy.spec.gang
            log.warning("root.made_again", gang=gang.name, namespace=gang.namespace, kind=gang.kind)

    async def _forget(self, uid: str) -> None:
        with suppress(NotFound):
            await self._cluster.delete(RootCopy, uid, namespace=self._namespace)

    async def forget_used(self, before: Recovery, after: Recovery) -> None:
        """Delete the copy that *before* needed and *after* does not. What fails is done by `clear`."""
        if is_being_rebuilt(before.status) and not _needs_copy(after) and before.status.rebuild is not None:
            with suppress(ClusterError):
                await self._forget(before.status.rebuild.uid)

    async def clear(self, find: Callable[[str, str], Recovery | None], kept_for: timedelta, now: datetime) -> None:
        """
        Delete the copies that nothing needs, now and then. *find* looks up a recovery by namespace and name.

        A copy whose root was not made is kept for a while after its recovery: a person may need it.

        Raises ClusterError.
        """
        if not self._namespace or (self._cleared is not None and now - self._cleared < CLEARED_EVERY):
            return
        self._cleared = now
        try:
            copies: Iterable[RootCopy] = (await self._cluster.list(RootCopy, namespace=self._namespace)).items
        except (NotFound, Forbidden):
            return
        for copy in copies:
            recovery, made = find(copy.spec.gang.namespace, copy.spec.recovery), copy.metadata.creation_timestamp
            is_old = made is not None and now - made >= kept_for
            is_made = recovery is not None and not _waits_for(copy, recovery)
            if is_made or (is_old and not (recovery and _needs_copy(recovery))):
                await self._forget(copy.metadata.name)


def _waits_for(copy: RootCopy, recovery: Recovery) -> bool:
    rebuild = recovery.status.rebuild
    return rebuild is not None and rebuild.uid == copy.metadata.name and not rebuild.made


def _needs_copy(recovery: Recovery) -> bool:
    return is_being_rebuilt(recovery.status) and recovery.status.phase not in ENDED


def _may_be_rebuilt(root: Root) -> bool:
    is_kept = root.failure is None or bool(root.failure.kept)
    return root.ending is RootOutcome.FAILED and root.options.rebuild and not is_kept


def _rules(adapter: GangAdapter[Any]) -> RebuildRules:
    """Raises InvalidText for a kind that is not made again."""
    if adapter.rebuild_rules is None:
        raise InvalidText(f"healthd makes no {adapter.kind_name} again")
    return adapter.rebuild_rules


def _made(copy: RootCopy, recovery: str, adapter: GangAdapter[Any]) -> Any:
    """The object to create. Raises Invalid where the copy cannot be read."""
    if adapter.manifest is None:
        raise Invalid(f"healthd makes no {adapter.kind_name} again")
    try:
        whole = made_again(copy.spec.manifest, copy.spec.gang, recovery, _rules(adapter))
        return msgspec.convert(whole, adapter.manifest)
    except (InvalidText, msgspec.ValidationError) as why:
        raise Invalid(f"RootCopy {copy.metadata.name}: {why}") from why


def _readable(copy: RootCopy) -> dict[str, Any]:
    """Raises Invalid."""
    try:
        return read_copy(copy.spec.manifest)
    except InvalidText as why:
        raise Invalid(f"RootCopy {copy.metadata.name}: {why}") from why
