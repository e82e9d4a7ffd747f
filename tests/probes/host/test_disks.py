"""Disks and file systems, from counters laid out as sysfs shows them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from healthd.probes.host.disks import Disks, FileSystems, MountInfo, parse_mount
from tests.fakes import START

NVME = "0000:05:00.0"
LOOK = timedelta(seconds=10)


class Block:
    """A fake /sys with one NVMe disk and one loop device."""

    def __init__(self, sys: Path) -> None:
        self.sys = sys
        self._disk = sys / "devices" / "pci0000:00" / NVME / "nvme" / "nvme0" / "nvme0n1"
        (self._disk / "device").mkdir(parents=True)
        (sys / "class" / "block" / "loop0").mkdir(parents=True)
        (sys / "class" / "block" / "nvme0n1").symlink_to(self._disk)
        self.put("ro", "0")
        self.work()

    def put(self, name: str, text: str) -> None:
        """Write one attribute of the disk."""
        (self._disk / name).write_text(f"{text}\n")

    def work(self, *, done: int = 0, waited_ms: int = 0, under_way: int = 0) -> None:
        """Half of it was read, half written."""
        half, rest = done // 2, done - done // 2
        self.put("stat", f"   {half} 1 8 {waited_ms}   {rest} 2 16 0 {under_way} 5 6 7 8 9 10")


@pytest.fixture
def block(tmp_path: Path) -> Block:
    """A disk that did nothing yet."""
    return Block(tmp_path)


def seen(probe: Disks, looks: int = 0) -> dict[str, float | str]:
    """What the look says that comes after so many others."""
    look = probe.sample(START + looks * LOOK)

    assert {(reading.device, reading.part) for reading in look.readings} <= {(NVME, "nvme0n1")}
    return {reading.name: reading.value for reading in look.readings}


def test_disk_is_identified_by_its_place_on_the_bus(block: Block) -> None:
    assert seen(Disks(block.sys)) == {"disk.writable": 1, "disk.silent_s": 0, "disk.await_ms": 0}


def test_time_that_requests_take(block: Block) -> None:
    probe = Disks(block.sys)
    seen(probe)
    block.work(done=100, waited_ms=250)

    assert seen(probe, 1)["disk.await_ms"] == 2.5


def test_few_requests_say_nothing_about_speed(block: Block) -> None:
    probe = Disks(block.sys)
    seen(probe)
    block.work(done=9, waited_ms=90_000)

    assert seen(probe, 1)["disk.await_ms"] == 0


def test_disk_that_answers_nothing_is_silent_ever_longer(block: Block) -> None:
    probe = Disks(block.sys)
    seen(probe)
    block.work(under_way=3)

    assert [seen(probe, looks)["disk.silent_s"] for looks in (1, 2, 7)] == [10, 20, 70]

    block.work(done=1, under_way=2)

    assert seen(probe, 8)["disk.silent_s"] == 0


def test_disk_that_has_nothing_to_do_is_not_silent(block: Block) -> None:
    probe = Disks(block.sys)

    assert [seen(probe, looks)["disk.silent_s"] for looks in range(9)] == [0] * 9


def test_disk_that_took_the_place_of_a_silent_one_begins_anew(block: Block) -> None:
    probe = Disks(block.sys)
    block.work(under_way=3)
    seen(probe)
    slot = block.sys / "class" / "block" / "nvme0n1"
    slot.rename(block.sys / "pulled")
    seen(probe, 1)
    (block.sys / "pulled").rename(slot)

    assert seen(probe, 9)["disk.silent_s"] == 0


def test_disk_that_cannot_be_written(block: Block) -> None:
    block.put("ro", "1")

    assert seen(Disks(block.sys))["disk.writable"] == 0


@pytest.mark.parametrize("text", ["", "1 2 3", "a b c d e f g h i j"])
def test_counters_that_make_no_sense_are_left_out(block: Block, text: str) -> None:
    block.put("stat", text)

    assert seen(Disks(block.sys)) == {"disk.writable": 1}


def mounted(proc: Path, *lines: str) -> Path:
    """A /proc with these mounts."""
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mountinfo").write_text("".join(f"{line}\n" for line in lines))
    return proc


def mount(point: str, options: str = "rw", source: str = "/dev/nvme0n1p2") -> str:
    """A line of mountinfo. *options*: of the file system; the mount itself is read-only."""
    return f"36 35 259:2 / {point} ro,noatime shared:1 - ext4 {source} {options},errors=remount-ro"


def in_file_system(probe: FileSystems) -> dict[tuple[str, str], float | str]:
    """What a look says, by name and part."""
    return {(reading.name, reading.part): reading.value for reading in probe.sample(START).readings}


@pytest.mark.parametrize(("options", "answer"), [("rw", "no"), ("ro", "yes")])
def test_read_only_is_said_of_the_file_system_and_not_of_our_mount(tmp_path: Path, options: str, answer: str) -> None:
    proc = mounted(tmp_path / "proc", mount("/", "rw", "overlay"), mount(str(tmp_path), options))

    reported = in_file_system(FileSystems([tmp_path / "file"], proc))

    assert reported == {("filesystem.read_only", "/dev/nvme0n1p2"): answer}


def test_space_of_a_file_system(tmp_path: Path) -> None:
    reported = in_file_system(FileSystems([tmp_path], mounted(tmp_path / "proc", mount("/"))))

    free = reported["filesystem.free_bytes", "/dev/nvme0n1p2"]
    assert isinstance(free, int)
    assert free > 0


def test_file_system_is_reported_once_however_many_paths_lie_on_it(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()

    look = FileSystems(paths, mounted(tmp_path / "proc", mount("/"))).sample(START)

    assert len({reading[:2] + reading[3:] for reading in look.readings}) == len(look.readings)


def test_mount_on_top_of_another_counts(tmp_path: Path) -> None:
    proc = mounted(tmp_path / "proc", mount(str(tmp_path), "ro"), mount(str(tmp_path), "rw", "/dev/sdb"))

    assert in_file_system(FileSystems([tmp_path / "file"], proc)) == {("filesystem.read_only", "/dev/sdb"): "no"}


def test_file_system_without_a_device_is_identified_by_its_path(tmp_path: Path) -> None:
    proc = mounted(tmp_path / "proc", mount("/", source="overlay"))

    assert in_file_system(FileSystems([Path("/nowhere")], proc)) == {("filesystem.read_only", "/nowhere"): "no"}


def test_path_with_a_space_is_found() -> None:
    assert parse_mount(mount(r"/a\040b")) == MountInfo("/a b", "/dev/nvme0n1p2", is_read_only=False)


@pytest.mark.parametrize("line", ["", " - ", "1 2 3", "36 35 259:2 / /x rw -", "a - b c"])
def test_line_that_is_no_mount(line: str) -> None:
    assert parse_mount(line) is None
