"""What ranks do with the network: real sockets of real processes, and a /proc that is made up."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthd.core.hang.suspects.evidence import Connection, NetworkEvidence
from healthd.probes.hang.network import MOST_THREADS, read_networks
from tests.procfs import a_tcp_line

HERE, THERE = "0500000A:733C", "0600000A:B8A6"
X86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls have other numbers here")
_ATTACH_FILTER = 26
"""From <asm-generic/socket.h>."""


def now(pid: int) -> NetworkEvidence:
    return read_networks([pid], until=time.monotonic() + 60)[pid]


def until(pid: int, good: Callable[[NetworkEvidence], bool]) -> NetworkEvidence:
    """What is read when it is good, or at last."""
    over = time.monotonic() + 30
    while not good(found := now(pid)) and time.monotonic() < over:
        pass
    return found


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            yield one, other


def endpoint(name: tuple[str, int]) -> str:
    return f"{name[0]}:{name[1]}"


class TestRealSockets:
    @pytest.mark.slow
    def test_what_is_sent_to_an_end_that_drops_all_is_lost_and_the_other_connection_is_not(
        self, connected: tuple[socket.socket, socket.socket]
    ) -> None:
        sender, receiver = connected
        _drop_all(receiver)
        sender.sendall(b"x" * 1000)
        found = until(os.getpid(), lambda found: any(each.unacknowledged for each in found.connections))
        mine = {each.local: each.unacknowledged for each in found.connections}

        assert mine[endpoint(sender.getsockname())] == 1000
        assert mine[endpoint(receiver.getsockname())] == 0
        assert found.namespace > 0

    def test_what_the_peer_has_not_read_is_not_lost(self, connected: tuple[socket.socket, socket.socket]) -> None:
        sender, _ = connected
        sender.sendall(b"x" * 1000)
        mine = {each.local: each for each in now(os.getpid()).connections}

        assert mine[endpoint(sender.getsockname())].unacknowledged == 0

    @X86_64
    def test_the_connection_for_which_a_process_waits_is_awaited(
        self, connected: tuple[socket.socket, socket.socket]
    ) -> None:
        _, end = connected
        script = "import socket; socket.socket(fileno=0).recv(1)"
        with subprocess.Popen([sys.executable, "-c", script], stdin=end.fileno()) as child:
            found = until(child.pid, lambda found: any(each.is_awaited for each in found.connections))
            child.kill()

        assert [each.local for each in found.connections if each.is_awaited] == [endpoint(end.getsockname())]
        assert not found.is_elsewhere

    @X86_64
    def test_a_process_that_reads_a_pipe_does_something_else(self) -> None:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
            found = until(child.pid, lambda found: found.is_elsewhere)
            child.kill()

        assert found.is_elsewhere


class TestMadeUp:
    """A tree of files as that of the kernel."""

    def test_the_connections_of_each_process_are_its_own(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7])
        a_process(tmp_path, 101, sockets=[8])
        for pid in (100, 101):
            a_table(tmp_path, pid, a_tcp_line(HERE, THERE, 7) + a_tcp_line(THERE, HERE, 8))
        found = read(tmp_path, 100, 101)

        assert found[100].connections == (Connection("10.0.0.5:29500", "10.0.0.6:47270"),)
        assert found[101].connections == (Connection("10.0.0.6:47270", "10.0.0.5:29500"),)

    def test_the_tables_of_both_families_are_read(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7, 8])
        a_table(tmp_path, 100, a_tcp_line(HERE, THERE, 7))
        mapped = "0000000000000000FFFF0000"
        a_table(tmp_path, 100, a_tcp_line(mapped + HERE, mapped + THERE, 8), name="tcp6")

        assert len(read(tmp_path, 100)[100].connections) == 2

    def test_a_table_of_which_the_kernel_counts_no_socket_is_not_read(self, tmp_path: Path) -> None:
        """A socket of a table that has one is of a later time, as it cannot be here."""
        a_process(tmp_path, 100, sockets=[7, 8])
        a_table(tmp_path, 100, a_tcp_line(HERE, THERE, 7))
        a_table(tmp_path, 100, a_tcp_line(HERE, THERE, 8), name="tcp6")
        (tmp_path / "100" / "net" / "sockstat").write_text("sockets: used 18\nTCP: inuse 8 orphan 2 tw 126 alloc 24\n")
        (tmp_path / "100" / "net" / "sockstat6").write_text("TCP6: inuse 0\nUDP6: inuse 0\n")

        assert len(read(tmp_path, 100)[100].connections) == 1

    @X86_64
    def test_a_rank_that_waits_for_a_connection_and_one_that_sleeps(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7], syscall="45 0x3 0x7f 0x4 0x0 0x0 0x0 0x7ff 0x7f")
        a_process(tmp_path, 101, sockets=[8], syscall="230 0x1 0x0 0x7ff 0x0 0x0 0x0 0x7ff 0x7f")
        for pid in (100, 101):
            a_table(tmp_path, pid, a_tcp_line(HERE, THERE, 7) + a_tcp_line(THERE, HERE, 8))
        found = read(tmp_path, 100, 101)

        assert (found[100].connections[0].is_awaited, found[100].is_elsewhere) == (True, False)
        assert (found[101].connections[0].is_awaited, found[101].is_elsewhere) == (False, True)

    def test_a_process_whose_descriptors_may_not_be_read_is_left_out(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7])
        (tmp_path / "101").mkdir()

        assert list(read(tmp_path, 100, 101)) == [100]

    def test_without_a_table_there_are_no_connections(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7])

        assert read(tmp_path, 100)[100].connections == ()

    @pytest.mark.parametrize("text", ["", "running", "-1 0x7ff 0x7f", "45", "45 x", "9" * 5000, "\udcff 0x1", "45 0x"])
    def test_a_system_call_of_anything_is_read_or_left_out(self, text: str, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7], syscall=text)
        found = read(tmp_path, 100)[100]

        assert found.is_elsewhere == (text == "running")

    def test_a_process_with_very_many_threads_may_wait_for_a_peer(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[], syscall="running")
        for thread in range(200, 200 + MOST_THREADS):
            a_thread(tmp_path, 100, thread, "running")

        assert not read(tmp_path, 100)[100].is_elsewhere

    def test_one_that_is_gone_in_the_second_look_is_left_out(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7])
        a_process(tmp_path, 101, sockets=[8])

        def end() -> None:
            (tmp_path / "101").rename(tmp_path / "gone")

        found = read_networks([100, 101], until=1.0, proc=str(tmp_path), now=lambda: 0.0, meanwhile=end)
        assert list(found) == [100]

    def test_what_was_acknowledged_meanwhile_is_not_lost(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7])
        a_table(tmp_path, 100, a_tcp_line(HERE, THERE, 7, unsent=900, timer="01", retransmissions=5))

        def recover() -> None:
            a_table(tmp_path, 100, a_tcp_line(HERE, THERE, 7))

        found = read_networks([100], until=1.0, proc=str(tmp_path), now=lambda: 0.0, meanwhile=recover)
        assert found[100].connections == (Connection("10.0.0.5:29500", "10.0.0.6:47270"),)
        assert read(tmp_path, 100)[100].connections[0].unacknowledged == 0

    def test_what_is_still_not_acknowledged_is_lost(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7])
        a_table(tmp_path, 100, a_tcp_line(HERE, THERE, 7, unsent=900, timer="01", retransmissions=5))

        assert read(tmp_path, 100)[100].connections[0].unacknowledged == 900

    def test_nothing_is_read_when_the_time_is_over(self, tmp_path: Path) -> None:
        a_process(tmp_path, 100, sockets=[7])

        assert read_networks([100], until=1.0, proc=str(tmp_path), now=lambda: 1.0, meanwhile=_nothing) == {}


def read(proc: Path, *pids: int) -> dict[int, NetworkEvidence]:
    return read_networks(pids, until=1.0, proc=str(proc), now=lambda: 0.0, meanwhile=_nothing)


def a_process(proc: Path, pid: int, *, sockets: list[int], syscall: str = "running") -> None:
    """Its first socket is descriptor 3. All are in one network namespace."""
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "ns").mkdir()
    (proc / str(pid) / "ns" / "net").symlink_to("net:[4026531840]")
    for number, target in enumerate(["/dev/null", "pipe:[1]", "pipe:[2]", *(f"socket:[{each}]" for each in sockets)]):
        (proc / str(pid) / "fd" / str(number)).symlink_to(target)
    a_thread(proc, pid, pid, syscall)


def a_thread(proc: Path, pid: int, thread: int, syscall: str) -> None:
    folder = proc / str(pid) / "task" / str(thread)
    folder.mkdir(parents=True)
    (folder / "syscall").write_bytes(syscall.encode(errors="surrogateescape"))


def a_table(proc: Path, pid: int, text: str, name: str = "tcp") -> None:
    (proc / str(pid) / "net").mkdir(exist_ok=True)
    (proc / str(pid) / "net" / name).write_text("  sl  local_address rem_address\n" + text)


def _drop_all(end: socket.socket) -> None:
    """A link that is lost in silence: what arrives is dropped, and never acknowledged."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    end.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


def _nothing() -> None:
    pass
