"""What the kernel's table of TCP connections and the system calls of threads say of one process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.core.hang.suspects.evidence import Connection, NetworkEvidence
from healthd.core.hang.suspects.sockets import (
    RUNNING,
    Look,
    TcpSocket,
    ThreadCall,
    network_evidence,
    read_table,
    socket_inode,
)
from tests.procfs import a_tcp_line

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
HERE, THERE = "0500000A:733C", "0600000A:B8A6"
WORDS = [b"0:", b"01", b"7", b"01:0", b"x", b":", b"-1", b"\xc3\xa9", b"0500000A:733C", b"05:FFFFFF", b"0" * 32 + b":1"]
RECEIVES = ThreadCall("recvfrom", "socket:[7]")
SLEEPS = ThreadCall("clock_nanosleep")


def table(text: str, *inodes: int) -> dict[int, TcpSocket]:
    return dict(read_table(text.encode().splitlines(keepends=True), inodes or (7,)))


def evidence(*threads: ThreadCall, sockets: dict[int, TcpSocket] | None = None) -> NetworkEvidence:
    """Of a process that looks the same twice."""
    look = Look(sockets or {}, threads)
    return network_evidence(look, look)


class TestTable:
    def test_a_connection_that_the_process_has_is_read(self) -> None:
        text = HEADER + a_tcp_line(HERE, THERE, 7, unread=8116) + a_tcp_line(THERE, HERE, 8)

        assert table(text) == {7: TcpSocket("10.0.0.5:29500", "10.0.0.6:47270", 0)}

    @pytest.mark.parametrize(
        ("field", "endpoint"),
        [
            ("0100007F:7148", "127.0.0.1:29000"),
            ("0000000000000000FFFF00000500000A:733C", "10.0.0.5:29500"),
            ("000000FD000000000000000002000000:0050", "[fd00::2]:80"),
            ("00000000000000000000000001000000:0050", "[::1]:80"),
        ],
    )
    def test_an_address_is_that_which_people_write(self, field: str, endpoint: str) -> None:
        assert table(a_tcp_line(field, THERE, 7))[7].local == endpoint

    def test_what_is_sent_again_and_again_is_lost(self) -> None:
        """As seen on kernel 6.18, 13 s after packets were dropped."""
        line = a_tcp_line(HERE, THERE, 7, unsent=0xA94, timer="01", retransmissions=5)

        assert table(line)[7].lost == 2708

    @pytest.mark.parametrize(
        "line",
        [
            pytest.param(a_tcp_line(HERE, THERE, 7, unsent=900, timer="01", retransmissions=2), id="just sent again"),
            pytest.param(a_tcp_line(HERE, THERE, 7, unsent=900, timer="01"), id="just sent"),
            pytest.param(a_tcp_line(HERE, THERE, 7, unsent=900, timer="04"), id="the peer does not read"),
            pytest.param(a_tcp_line(HERE, THERE, 7, timer="02", retransmissions=5), id="only asked whether it lives"),
        ],
    )
    def test_what_may_still_arrive_is_not_lost(self, line: str) -> None:
        assert table(line)[7].lost == 0

    @pytest.mark.parametrize("state", ["02", "08", "0A"])
    def test_what_is_not_established_is_left_out(self, state: str) -> None:
        assert table(a_tcp_line(HERE, THERE, 7, state=state)) == {}

    @given(st.binary(max_size=300) | st.lists(st.sampled_from(WORDS)).map(b" ".join))
    def test_a_line_of_anything_is_a_connection_or_left_out(self, line: bytes) -> None:
        for inode, socket in read_table([line], range(100)):
            assert inode in range(100)
            assert len(socket.local) <= 64


class TestTwice:
    def test_bytes_that_were_acknowledged_between_two_looks_are_not_lost(self) -> None:
        first, second = (Look({7: TcpSocket("a:1", "b:2", lost)}, ()) for lost in (900, 0))

        assert network_evidence(first, second).connections == (Connection("a:1", "b:2"),)

    def test_another_connection_with_the_same_number_is_left_out(self) -> None:
        first, second = (Look({7: TcpSocket("a:1", remote, 900)}, ()) for remote in ("b:2", "c:3"))

        assert network_evidence(first, second).connections == ()

    def test_a_thread_that_waits_for_another_peer_in_the_second_look_awaits_none(self) -> None:
        sockets = {7: TcpSocket("a:1", "b:2", 0), 8: TcpSocket("a:1", "c:3", 0)}
        first = Look(sockets, (RECEIVES,))
        second = Look(sockets, (ThreadCall("recvfrom", "socket:[8]"),))

        assert not any(each.is_awaited for each in network_evidence(first, second).connections)

    def test_of_many_connections_the_lost_ones_are_kept(self) -> None:
        sockets = {n: TcpSocket(f"a:{n}", "b:2", 9 if n == 950 else 0) for n in range(1000)}
        kept = evidence(sockets=sockets).connections

        assert (len(kept), kept[0].local) == (64, "a:950")


class TestThreads:
    @pytest.mark.parametrize("call", ["recvfrom", "recvmsg", "read", "sendto", "write"])
    def test_a_main_thread_that_receives_or_cannot_send_awaits_that_peer(self, call: str) -> None:
        found = evidence(
            ThreadCall(call, "socket:[7]"), sockets={7: TcpSocket("a:1", "b:2", 0), 8: TcpSocket("a:1", "c:3", 0)}
        )

        assert [(each.remote, each.is_awaited) for each in found.connections] == [("b:2", True), ("c:3", False)]
        assert not found.is_elsewhere

    def test_what_another_thread_receives_is_not_awaited(self) -> None:
        found = evidence(SLEEPS, RECEIVES, sockets={7: TcpSocket("a:1", "b:2", 0)})

        assert not found.connections[0].is_awaited
        assert not found.is_elsewhere

    @pytest.mark.parametrize(
        "thread",
        [
            SLEEPS,
            ThreadCall(RUNNING),
            ThreadCall("futex"),
            ThreadCall("read", "pipe:[9]"),
            ThreadCall("read", "/mnt/nfs/shard-3"),
            ThreadCall("openat"),
        ],
    )
    def test_these_wait_for_nothing_on_the_network(self, thread: ThreadCall) -> None:
        assert evidence(thread).is_elsewhere
        assert evidence(thread, SLEEPS).is_elsewhere

    @pytest.mark.parametrize(
        "thread",
        [
            ThreadCall(""),
            ThreadCall("poll"),
            ThreadCall("epoll_wait", "anon_inode:[eventpoll]"),
            ThreadCall("recvfrom", "socket:[7]"),
            ThreadCall("read", "socket:[7]"),
            ThreadCall("read", "anon_inode:[infinibandevent]"),
            ThreadCall("read", "/dev/infiniband/uverbs0"),
            ThreadCall("read"),
            ThreadCall("ioctl", "/dev/nvidia0"),
            ThreadCall("pause"),
            ThreadCall("wait4"),
            ThreadCall("flock", "/tmp/lock"),
            ThreadCall("sched_yield"),
        ],
    )
    def test_these_may_wait_for_a_peer(self, thread: ThreadCall) -> None:
        assert not evidence(thread).is_elsewhere
        assert not evidence(SLEEPS, thread).is_elsewhere

    def test_a_process_whose_threads_could_not_be_read_may_wait_for_a_peer(self) -> None:
        assert not evidence().is_elsewhere


@pytest.mark.parametrize(
    ("target", "inode"), [("socket:[4711]", 4711), ("pipe:[4711]", None), ("/socket:[1]", None), ("", None)]
)
def test_the_inode_is_that_of_a_socket(target: str, inode: int | None) -> None:
    assert socket_inode(target) == inode
