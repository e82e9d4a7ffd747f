"""Selects the source of kernel records: the one that the policy names, or the best that this process may read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from healthd.clock import Clock
from healthd.core.api import KernelLogCursor
from healthd.core.config import KernelLogPolicy, KernelLogSource
from healthd.probes.errors import CannotRead
from healthd.probes.host_root import HostRoot
from healthd.probes.klog.journal import Journal
from healthd.probes.klog.kmsg import open_kmsg
from healthd.probes.klog.log import KernelLog
from healthd.probes.klog.log_file import FileLog
from healthd.probes.klog.received_fd import receive_kmsg
from healthd.probes.klog.record import KernelTime, may_matter_or


@dataclass(frozen=True, kw_only=True)
class _Sources:
    """The sources that a policy may name. Each raises CannotRead with the way to allow it."""

    policy: KernelLogPolicy
    host: HostRoot
    clock: Clock
    boot_id: str
    booted_at: datetime
    cursor: KernelLogCursor | None
    also: Sequence[str]

    def kmsg(self) -> KernelLog:
        return open_kmsg(
            self.policy.path or str(self.host.kmsg),
            clock=self.clock,
            boot_id=self.boot_id,
            cursor=self.cursor,
            fd=receive_kmsg(self.policy.socket) if self.policy.socket else None,
            trust_user_space=self.policy.trust_user_space,
            wanted=may_matter_or(self.also),
        )

    def journal(self) -> KernelLog:
        return Journal(boot_id=self.boot_id, kernel_time=KernelTime(self.clock, self.booted_at), cursor=self.cursor)

    def file(self) -> KernelLog:
        return FileLog(
            Path(self.policy.path),
            clock=self.clock,
            boot_id=self.boot_id,
            booted_at=self.booted_at,
            cursor=self.cursor,
            trust_user_space=self.policy.trust_user_space,
        )

    def best(self) -> KernelLog:
        """The ring. Without an opener, which serves the ring alone, the journal where the ring cannot be opened."""
        if self.policy.socket:
            return self.kmsg()
        try:
            return self.kmsg()
        except CannotRead as refusal:
            return _instead(refusal, self.journal)


def open_kernel_log(
    policy: KernelLogPolicy,
    host: HostRoot,
    clock: Clock,
    *,
    boot_id: str,
    cursor: KernelLogCursor | None = None,
    also: Sequence[str] = (),
) -> KernelLog:
    """
    The kernel log of *host* after *cursor*. Raises CannotRead with the way to allow it.

    *also*: the beginnings of further lines that matter, beside those that healthd knows.
    """
    booted_at = clock.now() - timedelta(seconds=time.monotonic())
    sources = _Sources(
        policy=policy, host=host, clock=clock, boot_id=boot_id, booted_at=booted_at, cursor=cursor, also=also
    )
    match policy.source:
        case KernelLogSource.KMSG:
            return sources.kmsg()
        case KernelLogSource.JOURNAL:
            return sources.journal()
        case KernelLogSource.FILE:
            return sources.file()
        case KernelLogSource.AUTO:
            return sources.best()


def _instead(refusal: CannotRead, journal: Callable[[], KernelLog]) -> KernelLog:
    """The journal. When that cannot be opened either, the refusal of the better source is reported."""
    try:
        return journal()
    except CannotRead:
        raise refusal from None
