"""What the tests of several probes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel_log import RealLog, Unwritable, kernel_log


@pytest.fixture
def real_log() -> Iterator[RealLog]:
    """The machine's own kernel log, locked for this test."""
    try:
        with kernel_log() as log:
            yield log
    except Unwritable as refusal:
        pytest.skip(str(refusal))
