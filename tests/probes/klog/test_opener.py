"""The opener as a process of its own, and the descriptors that it hands out."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.core.config import KernelLogPolicy
from healthd.probes.errors import CannotRead
from healthd.probes.host_root import HostRoot
from healthd.probes.klog import opener as opener_file
from healthd.probes.klog.kmsg import read_boot_id
from healthd.probes.klog.received_fd import receive_kmsg
from healthd.probes.klog.source_selection import open_kernel_log
from tests.kernel_log import RealLog

OPENER = [sys.executable, "-I", "-S", opener_file.__file__]
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give away, and other users to be")
STRANGER = 64321
PATIENCE = 30

Opener = Callable[..., AbstractContextManager[subprocess.Popen[bytes]]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the opener listens."""
    return tmp_path / "kmsg.sock"


@pytest.fixture
def device() -> Iterator[Path]:
    """A file in place of /dev/kmsg, where also user nobody may reach it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "kmsg")
        file.write_bytes(b"6,1,1,-;one\n")
        yield file


@pytest.fixture
def opener(path: Path, device: Path) -> Opener:
    """Starts it for us, or for *uid*; answers it once it listens."""

    @contextmanager
    def start(uid: int = os.geteuid(), device: str | Path = device) -> Iterator[subprocess.Popen[bytes]]:
        command = [*OPENER, str(path), str(uid), str(device)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            try:
                assert process.stderr is not None
                process.stderr.readline()
                yield process
            finally:
                process.kill()

    return start


def status_of(pid: int) -> dict[str, str]:
    """What the kernel says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def megabytes_of(pid: int) -> float:
    """Its proportional share of memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) / 1024


def test_every_client_gets_the_device_open_for_reading(opener: Opener, path: Path, device: Path) -> None:
    with opener():
        descriptor = receive_kmsg(str(path))

    assert os.path.samestat(os.fstat(descriptor), device.stat())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(descriptor, b"forged")
    os.close(descriptor)


def test_every_reader_has_a_place_of_its_own(opener: Opener, path: Path) -> None:
    with opener():
        first, second = receive_kmsg(str(path)), receive_kmsg(str(path))
    read = [os.read(first, 100), os.read(second, 100)]

    assert read == [b"6,1,1,-;one\n"] * 2
    os.close(first)
    os.close(second)


def test_a_descriptor_outlives_its_opener(opener: Opener, path: Path) -> None:
    with opener():
        descriptor = receive_kmsg(str(path))

    assert os.read(descriptor, 100)
    os.close(descriptor)


def test_a_new_opener_takes_the_place_of_one_that_was_killed(opener: Opener, path: Path) -> None:
    with opener() as first:
        first.kill()
    with pytest.raises(CannotRead, match="cannot be asked"):
        receive_kmsg(str(path))
    with opener():
        os.close(receive_kmsg(str(path)))


def test_garbage_and_clients_that_leave_do_not_disturb_it(opener: Opener, path: Path) -> None:
    with opener():
        for number in range(200):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                if number % 2:
                    with suppress(BrokenPipeError, ConnectionResetError):  # it was answered and closed before
                        client.sendall(b"\x00" * 10_000)
        os.close(receive_kmsg(str(path)))


def test_a_device_that_will_not_open_is_reported_with_the_reason(opener: Opener, path: Path, device: Path) -> None:
    with opener(device=device.with_name("missing")), pytest.raises(CannotRead, match="No such file or directory"):
        receive_kmsg(str(path))


@ROOT_ONLY
def test_another_user_is_kept_out_by_the_socket_and_one_that_gets_through_gets_nothing(
    opener: Opener, path: Path
) -> None:
    with opener(uid=STRANGER), pytest.raises(CannotRead, match="does not serve user 0"):
        receive_kmsg(str(path))  # root may connect to every socket

    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (STRANGER, 0o600)


@ROOT_ONLY
def test_a_link_in_the_place_of_the_socket_gives_nothing_away(path: Path, device: Path) -> None:
    path.symlink_to(device)

    opener_file.give_to(STRANGER, str(path))

    assert device.stat().st_uid == 0
    assert path.lstat().st_uid == STRANGER


@ROOT_ONLY
@pytest.mark.parametrize("left_behind", ["a link", "a file", "a pipe"])
def test_what_was_left_in_the_place_of_the_socket_is_replaced_and_not_followed(
    opener: Opener, path: Path, device: Path, left_behind: str
) -> None:
    match left_behind:
        case "a link":
            path.symlink_to(device)
        case "a file":
            path.write_bytes(b"")
        case _:
            os.mkfifo(path)

    with opener(uid=STRANGER):
        assert path.is_socket()

    assert (device.stat().st_uid, device.read_bytes()) == (0, b"6,1,1,-;one\n")


@ROOT_ONLY
def test_it_gives_every_right_away_but_that_of_opening_the_log(opener: Opener) -> None:
    with opener() as process:
        status = status_of(process.pid)

    assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4
    assert [int(status[name], 16) for name in ("CapEff", "CapPrm")] == [1 << 34, 1 << 34]
    assert [int(status[name], 16) for name in ("CapBnd", "CapInh", "CapAmb")] == [0, 0, 0]
    assert (status["NoNewPrivs"], status["Groups"]) == ("1", "")


def test_it_costs_less_than_ten_megabytes(opener: Opener, path: Path) -> None:
    with opener() as process:
        for _ in range(100):
            os.close(receive_kmsg(str(path)))
        megabytes = megabytes_of(process.pid)

    assert megabytes < 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(opener: Opener, number: int) -> None:
    with opener() as process:
        process.send_signal(number)

        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("arguments", [[], ["/tmp/s"], ["/tmp/s", "agent"], ["/tmp/s", "1", "/dev/kmsg", "more"]])
def test_wrong_arguments_are_answered_with_the_usage(arguments: list[str]) -> None:
    answer = subprocess.run([*OPENER, *arguments], stderr=subprocess.PIPE, check=False, timeout=PATIENCE)

    assert (answer.returncode, b"usage:" in answer.stderr) == (2, True)


def test_a_folder_that_is_missing_is_reported(tmp_path: Path) -> None:
    command = [*OPENER, str(tmp_path / "missing" / "s"), "1"]
    answer = subprocess.run(command, stderr=subprocess.PIPE, check=False, timeout=PATIENCE)

    assert (answer.returncode, b"No such file or directory" in answer.stderr) == (1, True)


def test_an_agent_without_its_opener_says_where_it_looked(path: Path) -> None:
    with pytest.raises(CannotRead, match=f"{path}.*the opener cannot be asked"):
        receive_kmsg(str(path))


@pytest.mark.kmsg
async def test_the_machines_own_log_is_read_through_it(real_log: RealLog, opener: Opener, path: Path) -> None:
    policy = KernelLogPolicy(socket=str(path), trust_user_space=True)
    with opener(device="/dev/kmsg"):
        kernel_log = open_kernel_log(policy, HostRoot(), SystemClock(), boot_id=read_boot_id())
    real_log.write("NVRM: through the opener")
    async with aclosing(kernel_log.batches()) as batches:
        async for batch in batches:
            if any(real_log.wrote(record) for record in batch.records):
                break

    assert kernel_log.source == "kmsg"
