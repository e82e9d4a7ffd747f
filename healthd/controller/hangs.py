"""
Reports gangs whose ranks have all fallen silent, once when that begins and once when it is over.

The record of it is on the root, so a restarted controller or a new leader reports it no second time. A write has the
version of the root that was read as its precondition: of two controllers one succeeds, and only that one reports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import structlog

from healthd.cluster.port import Cluster, Conflict, NotFound, Refused
from healthd.controller.observer import Snapshot
from healthd.core.api import ANNOTATION_SILENCE, Recovery
from healthd.core.config import HangPolicy
from healthd.core.hang.describe import why_hang
from healthd.core.hang.silence import Silence
from healthd.core.recovery.gang import Root
from healthd.core.recovery.hangs.silence_record import members_of, next_record, what_follows
from healthd.core.recovery.hangs.suspicion import again_text
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.events import NORMAL, WARNING, Announce, about_gang

log = structlog.get_logger()

TRY_AGAIN = timedelta(minutes=1)
"""After a record was refused. Alerts come from it, and a webhook that does not answer is mended some time."""


class _RefusedRecord(NamedTuple):
    """The beginning of a silence that was reported, and when its record was refused last."""

    since: datetime
    at: datetime


class HangReporter:
    """Records silences on roots through *cluster*, and announces them."""

    def __init__(
        self,
        cluster: Cluster,
        adapters: Mapping[str, GangAdapter[Any]],
        policy: HangPolicy,
        announce: Announce,
        recoveries: Callable[[], Iterable[Recovery]],
    ) -> None:
        self._recoveries = recoveries
        self._cluster = cluster
        self._adapters = adapters
        self._policy = policy
        self._announce = announce
        self._refused: dict[str, _RefusedRecord] = {}
        """By uid of the root."""

    async def record(self, seen: Snapshot) -> bool:
        """Record and report what began or ended. True: the root was written. Raises ClusterError."""
        root = seen.root
        record = next_record(seen.view, seen.silence, seen.now)
        if root is None or record is None:
            return False
        refused = self._refused.get(root.ref.uid)
        is_reported = refused is not None and refused.since == record.since
        if refused is not None and is_reported and refused.at <= seen.now < refused.at + TRY_AGAIN:
            return False
        is_refused = is_written = False
        try:
            is_written = await self._store(root, record)
        except Refused as error:  # such as an older admission policy
            if not is_reported:
                name, space = root.ref.name, root.ref.namespace
                log.warning("gang.silence_not_stored", gang=name, namespace=space, error=str(error))
            self._refused[root.ref.uid], is_refused = _RefusedRecord(record.since, seen.now), True
        if (is_written or is_refused) and not is_reported:
            self._report(root, record, seen.silence.doubt if seen.silence else "")
        return is_written

    def forget_others(self, uids: Collection[str]) -> None:
        """Forget what is known of gangs that are not in *uids*."""
        self._refused = {uid: refused for uid, refused in self._refused.items() if uid in uids}

    async def _store(self, root: Root, record: Silence) -> bool:
        """False: the root changed since it was read, and the next reconcile sees it. Raises ClusterError."""
        notes = {ANNOTATION_SILENCE: msgspec.json.encode(record).decode()}
        try:
            await self._adapters[root.ref.kind].patch(self._cluster, root, {"metadata": {"annotations": notes}})
        except (Conflict, NotFound):
            return False
        self._refused.pop(root.ref.uid, None)
        return True

    def _report(self, root: Root, record: Silence, doubt: str) -> None:
        about = about_gang(root.ref, self._adapters[root.ref.kind].kind)
        name = {"gang": root.ref.name, "namespace": root.ref.namespace, "since": record.since.isoformat()}
        if record.ended_at is None:
            why = why_hang(record, members_of(record, root))
            nodes = dict.fromkeys(suspect.node for suspect in record.suspects)
            again = again_text(nodes, self._recoveries())
            follows = what_follows(root, self._policy, record, doubt)
            message = "; ".join(filter(None, [why, record.located, again, follows]))
            log.warning("gang.hangs", **name, why=message)
            self._announce(about, WARNING, "GangHangs", message)
            return
        seconds = (record.ended_at - record.since).total_seconds()
        how = "it was stopped" if record.was_stopped else "it works again"
        message = f"{how} after {seconds:.0f} s without work"
        log.info("gang.hang_over", **name, how=message)
        self._announce(about, NORMAL, "GangHangOver", message)
