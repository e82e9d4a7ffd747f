"""
What the store does to its file: nothing acknowledged is lost, nothing foreign is touched, trouble has the port's names.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from healthd.cluster.embedded import DamagedStore, EmbeddedCluster, UnusableStore
from healthd.cluster.embedded.opening import Busy, alone
from healthd.cluster.port import Unavailable
from healthd.core.api import Lease
from tests.builders import a_lease
from tests.fakes import ManualClock, counting_uids

ROOT = Path(__file__).parents[2]


def opened(path: Path | None, uids: str = "uid") -> EmbeddedCluster:
    """A cluster on *path*."""
    return EmbeddedCluster.open(path, clock=ManualClock(), new_uid=counting_uids(uids))


def a_writer(path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Another process that writes to the store; see `writer`."""
    command = [sys.executable, "-m", "tests.cluster.writer", str(path), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def words_of_a_killed_writer(path: Path, lines: int) -> list[str]:
    """All that a writer said that was killed once it had said so many lines."""
    with a_writer(path, "lease") as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(lines)]
        writer.kill()
        return said + writer.stdout.readlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store may be made."""
    return tmp_path / "cluster.db"


async def test_reopened_store_holds_what_was_written(path: Path) -> None:
    with opened(path) as cluster:
        made = await cluster.create(a_lease("lease-a"))
    with opened(path) as cluster:
        assert await cluster.get(Lease, "lease-a", "default") == made


async def test_versions_go_on_after_reopening(path: Path) -> None:
    with opened(path) as cluster:
        made = await cluster.create(a_lease("lease-a"))
    with opened(path, "later") as cluster:
        later = await cluster.create(a_lease("lease-b"))

    assert int(later.metadata.resource_version) == int(made.metadata.resource_version) + 1


@pytest.mark.slow
@pytest.mark.parametrize("acknowledged", [1, 23, 170])
async def test_acknowledged_writes_survive_kill_9(path: Path, acknowledged: int) -> None:
    said = words_of_a_killed_writer(path, acknowledged)

    with opened(path) as cluster:
        names = {lease.metadata.name for lease in (await cluster.list(Lease)).items}

    assert len(said) >= acknowledged
    assert {f"lease-{int(number)}" for number in said} <= names


async def test_two_clusters_on_one_file_see_each_others_writes(path: Path) -> None:
    with opened(path, "one") as one, opened(path, "two") as two:
        made = await one.create(a_lease("lease-a"))
        held = await two.patch(Lease, "lease-a", {"spec": {"holderIdentity": "two"}}, namespace="default")

        assert await one.get(Lease, "lease-a", "default") == held
        assert int(held.metadata.resource_version) == int(made.metadata.resource_version) + 1


async def test_two_processes_may_make_and_fill_one_store(path: Path) -> None:
    with a_writer(path, "one", "50") as one, a_writer(path, "two", "50") as two:
        said = [one.communicate()[0].splitlines(), two.communicate()[0].splitlines()]

    with opened(path) as cluster:
        listed = await cluster.list(Lease)

    assert [len(words) for words in said] == [50, 50]
    assert len(listed.items) == 100
    assert len({lease.metadata.resource_version for lease in listed.items}) == 100


@pytest.mark.parametrize("kind", [fcntl.LOCK_SH, fcntl.LOCK_EX])
async def test_a_lock_that_is_held_on_the_folder_does_not_keep_the_store_shut(path: Path, kind: int) -> None:
    """As by a run that saves in a folder within it."""
    folder = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(folder, kind)

    with opened(path) as cluster:
        assert (await cluster.create(a_lease("lease-a"))).metadata.uid
    os.close(folder)


def test_a_store_that_another_process_never_finishes_to_open_is_busy_and_not_waited_for(path: Path) -> None:
    with alone(path), pytest.raises(Busy, match=f"`fuser {path}.opening` names it"), alone(path, patience=0):
        pass

    with alone(path, patience=0):
        assert path.with_name("cluster.db.opening").exists()
    assert list(path.parent.iterdir()) == []


def test_a_store_that_is_there_opens_where_no_file_can_be_made_beside_it(path: Path) -> None:
    path.touch()
    path.with_name("cluster.db.opening").mkdir()

    with alone(path):
        path.unlink()
    with pytest.raises(IsADirectoryError), alone(path):
        pass


async def test_store_is_readable_by_its_owner_alone(path: Path) -> None:
    with opened(path) as cluster:
        await cluster.create(a_lease())
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}

    assert modes["cluster.db"] == 0o600
    assert set(modes.values()) == {0o600}


async def test_waiting_too_long_for_another_writer_is_unavailable(path: Path) -> None:
    with opened(path) as cluster:
        cluster._store._connection.execute("PRAGMA busy_timeout = 0")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            await cluster.create(a_lease())
        other.close()

        assert (await cluster.create(a_lease())).metadata.uid


async def test_full_disk_is_unavailable_and_loses_nothing(path: Path) -> None:
    with opened(path) as cluster:
        made = await cluster.create(a_lease("lease-a"))
        pages = cluster._store._connection.execute("PRAGMA page_count").fetchone()[0]
        cluster._store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(Unavailable, match="full"):
            await cluster.create(a_lease("lease-b", annotations={"example.com/large": "x" * 100_000}))
        cluster._store._connection.execute("PRAGMA max_page_count = 1000000")

        assert (await cluster.list(Lease)).items == [made]
        assert (await cluster.create(a_lease("lease-b"))).metadata.uid


async def test_closed_store_is_unavailable() -> None:
    cluster = opened(None)
    cluster.close()

    with pytest.raises(Unavailable, match="closed"):
        await cluster.get(Lease, "lease-a", "default")


def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE theirs (a)")
    foreign.close()
    before = path.read_bytes()

    with pytest.raises(UnusableStore, match=r"cluster\.db.*another program"):
        opened(path)

    assert path.read_bytes() == before


def test_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("all: test\n" * 500)

    with pytest.raises(DamagedStore, match="not a database"):
        opened(path)

    assert path.read_text() == "all: test\n" * 500


def test_store_of_a_newer_healthd_is_refused(path: Path) -> None:
    opened(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()

    with pytest.raises(UnusableStore, match=r"newer healthd.*99"):
        opened(path)


def test_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableStore, match=r"absent/cluster\.db"):
        opened(tmp_path / "absent" / "cluster.db")


async def test_damage_found_while_running_is_no_passing_trouble(path: Path) -> None:
    with opened(path) as cluster:
        for number in range(100):
            await cluster.create(a_lease(f"lease-{number}"))
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))

    with opened(path) as cluster, pytest.raises(DamagedStore, match="malformed"):
        await cluster.list(Lease)
