"""
Which source of kernel records is read: the one that the policy names, or the best that this process may read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from healthd.clock import Clock
from healthd.core.objects import KernelLogCursor
from healthd.core.policy import KernelLogPolicy, KernelLogSource
from healthd.probes.errors import CannotRead
from healthd.probes.klog.handed import receive_kmsg
from healthd.probes.klog.journal import Journal
from healthd.probes.klog.kmsg import open_kmsg
from healthd.probes.klog.log import KernelLog
from healthd.probes.klog.log_file import FileLog
from healthd.probes.klog.record import KernelTime


def open_kernel_log(
    policy: KernelLogPolicy, clock: Clock, *, boot_id: str, cursor: KernelLogCursor | None = None
) -> KernelLog:
    """The kernel log after *cursor*. Raises CannotRead with the way to allow it."""
    booted_at = clock.now() - timedelta(seconds=time.monotonic())

    def kmsg() -> KernelLog:
        return open_kmsg(
            policy.path,
            clock=clock,
            boot_id=boot_id,
            cursor=cursor,
            fd=receive_kmsg(policy.socket) if policy.socket else None,
            trust_user_space=policy.trust_user_space,
        )

    def journal() -> KernelLog:
        return Journal(boot_id=boot_id, kernel_time=KernelTime(clock, booted_at), cursor=cursor)

    match policy.source:
        case KernelLogSource.KMSG:
            return kmsg()
        case KernelLogSource.JOURNAL:
            return journal()
        case KernelLogSource.FILE:
            return FileLog(
                Path(policy.path),
                clock=clock,
                boot_id=boot_id,
                booted_at=booted_at,
                cursor=cursor,
                trust_user_space=policy.trust_user_space,
            )
        case KernelLogSource.AUTO if policy.socket:
            return kmsg()
        case KernelLogSource.AUTO:
            try:
                return kmsg()
            except CannotRead as refusal:
                return _instead(refusal, journal)


def _instead(refusal: CannotRead, journal: Callable[[], KernelLog]) -> KernelLog:
    """The journal; when that is closed, too, the refusal of the better source is what a person should know."""
    try:
        return journal()
    except CannotRead:
        raise refusal from None
