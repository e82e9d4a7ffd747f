"""Where the checkpoints of a gang are looked up."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.controller.lookup import FileCheckpoints
from healthd.core.gang import GangOptions, Root
from tests.core.gangs import a_root


def saving_to(location: str) -> Root:
    """A gang that names *location*."""
    return a_root(options=GangOptions(restart=True, checkpoint=location))


@pytest.mark.parametrize("location", ["s3://bucket/run", "pvc://claim/run"])
async def test_a_store_that_healthd_cannot_read_is_not_taken_for_an_empty_one(location: str) -> None:
    answer = await FileCheckpoints().latest(saving_to(location))

    assert answer.found is None
    assert [refused.path for refused in answer.rejected] == [location]


async def test_a_gang_that_names_no_store_has_saved_nothing() -> None:
    assert await FileCheckpoints().latest(saving_to("")) == (None, [])


async def test_a_directory_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert await FileCheckpoints().latest(saving_to(f"file://{tmp_path}/later")) == (None, [])
