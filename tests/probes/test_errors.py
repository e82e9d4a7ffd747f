"""What a person reads when a source is closed."""

from __future__ import annotations

import errno
import os

import pytest

from healthd.probes.errors import cannot_open_kernel_log


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EPERM, "kernel.dmesg_restrict=0"),
        (errno.EACCES, "CAP_SYSLOG"),
        (errno.ENOENT, "mount the host's /dev/kmsg"),
        (errno.EISDIR, "check that the path"),
    ],
)
def test_a_refusal_names_the_way_out(code: int, remedy: str) -> None:
    refusal = cannot_open_kernel_log("/dev/kmsg", OSError(code, os.strerror(code)))

    assert remedy in str(refusal)
    assert str(refusal).startswith(f"cannot read /dev/kmsg: {os.strerror(code)}")
