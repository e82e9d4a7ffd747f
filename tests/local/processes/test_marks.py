"""Processes are found by the mark in their environment when nothing else can tell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from healthd.local.processes.marks import find_processes, kill_marked
from tests.local.helpers import Witness, heard_pids, stubborn, witness_at


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with witness_at(tmp_path / "witness") as witness:
        yield witness


@asynccontextmanager
async def unsupervised(argv: list[str], uid: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process with the mark of *uid* and no shim."""
    process = await asyncio.create_subprocess_exec(*argv, env={**os.environ, "HEALTHD_POD_UID": uid})
    try:
        yield process
    finally:
        await kill_marked(uid)
        await process.wait()


async def test_every_descendant_is_found_by_its_mark(witness: Witness, tmp_path: Path) -> None:
    uid = tmp_path.name
    async with unsupervised(stubborn(witness), uid):
        pids = await heard_pids(witness)

        assert sorted(find_processes(uid)) == sorted(pids.values())


async def test_a_mark_that_only_begins_alike_is_another_pod(witness: Witness, tmp_path: Path) -> None:
    uid = tmp_path.name
    async with unsupervised(stubborn(witness), uid + "0"):
        await heard_pids(witness)

        assert find_processes(uid) == []
        assert await kill_marked(uid) == 0
        assert not witness.is_alone()


async def test_killing_by_mark_ends_when_nothing_is_left(witness: Witness, tmp_path: Path) -> None:
    async with unsupervised(stubborn(witness), tmp_path.name):
        await heard_pids(witness)
        killed = await kill_marked(tmp_path.name)

        assert killed == 2
        assert witness.is_alone()
