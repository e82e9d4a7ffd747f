"""How a probe reports that its source cannot be opened: what, why, and the remedy."""

from __future__ import annotations

import errno


class CannotRead(Exception):
    """A source that cannot be read at all. `str()` is one line for an operator: path, reason, remedy."""

    def __init__(self, path: str, why: str, remedy: str) -> None:
        super().__init__(f"cannot read {path}: {why}; {remedy}")
        self.path = path
        self.why = why
        self.remedy = remedy


def cannot_open_kernel_log(path: str, error: OSError) -> CannotRead:
    """The error for a kernel-log device that would not open."""
    why = error.strerror or str(error)
    match error.errno:
        case errno.EPERM | errno.EACCES:
            remedy = (
                "run as root or with CAP_SYSLOG, or allow everybody with `sysctl kernel.dmesg_restrict=0`; "
                "in a container also grant the device (privileged, or let the opener hand over a descriptor)"
            )
        case errno.ENOENT | errno.ENXIO | errno.ENODEV:
            remedy = "in a container mount the host's /dev/kmsg; on a host without it read the journal instead"
        case _:
            remedy = "check that the path is a kernel-log device"
    return CannotRead(path, why, remedy)
