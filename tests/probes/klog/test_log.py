"""Where a reader goes on."""

from __future__ import annotations

import pytest

from healthd.core.objects import KernelLogCursor
from healthd.probes.klog.log import known_sequence


def test_a_reader_goes_on_after_its_own_cursor() -> None:
    cursor = KernelLogCursor(boot_id="boot-1", sequence=7, source="kmsg")

    assert known_sequence(cursor, boot_id="boot-1", source="kmsg") == 7


@pytest.mark.parametrize(
    "cursor",
    [
        None,
        KernelLogCursor(),
        KernelLogCursor(boot_id="boot-0", sequence=7, source="kmsg"),
        KernelLogCursor(boot_id="boot-1", sequence=10**12, source="journal"),
    ],
    ids=["none", "empty", "another boot", "another source"],
)
def test_a_cursor_that_says_nothing_here_means_from_the_start(cursor: KernelLogCursor | None) -> None:
    assert known_sequence(cursor, boot_id="boot-1", source="kmsg") == -1
