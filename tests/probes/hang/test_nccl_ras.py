"""Asking NCCL RAS once: which jobs may be asked, what the answer says, and servers that do harm."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from healthd.core.hang.suspects.evidence import RankEvidence, Source
from healthd.core.hang.suspects.ras import FIRST_SAFE, LARGEST_ANSWER, NoAnswer, Version, find_version, read_answer
from healthd.core.hang.suspects.vote import vote
from healthd.probes.errors import CannotRead
from healthd.probes.hang.nccl_ras import RasRefused, ask_ras, version_of_library
from tests.probes.hang.ras_server import RasServer, a_communicator, a_member, a_missing, a_report, serving

SAFE = FIRST_SAFE


def asked(server: RasServer, ranks: int, **options: Any) -> Any:
    return ask_ras(ranks, SAFE, host="127.0.0.1", port=server.port, **options)


class TestQuestion:
    def test_the_rank_that_enqueued_fewer_collectives_is_found_with_one_question(self) -> None:
        with serving(a_report(a_communicator("0xabc", [9, 9, 8, 9]))) as server:
            answer = asked(server, 4)
        assert [answer[rank].groups[0].number for rank in range(4)] == [9, 9, 8, 9]
        ranks = [RankEvidence(rank, groups=answer[rank].groups) for rank in range(4)]
        (suspect,) = vote(ranks).suspects
        assert (suspect.rank, suspect.witnesses[0].source) == (2, Source.RAS)
        assert server.heard == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS"]

    @pytest.mark.parametrize("version", [None, (2, 24, 3), (2, 26, 5), (2, 27, 7), (2, 28, 9), (2, 29, 7), (2, 30, 7)])
    def test_a_job_that_might_crash_is_sent_nothing(self, version: Version | None) -> None:
        with serving(a_report()) as server, pytest.raises(RasRefused):
            ask_ras(4, version, host="127.0.0.1", port=server.port)
        assert server.heard == []

    def test_a_site_may_allow_an_older_version(self) -> None:
        with serving(a_report(a_communicator("0xabc", [1, 1]))) as server:
            assert len(ask_ras(2, (2, 29, 7), host="127.0.0.1", port=server.port, first_safe=(2, 29, 2))) == 2


class TestAnswer:
    def test_ranks_of_smaller_communicators_are_known_by_their_gpu(self) -> None:
        pair = a_communicator("0xdef", []) | {"size": 2, "ranks": [a_member(0, 5, place=2), a_member(1, 4, place=3)]}
        answer = read_answer(a_report(pair, a_communicator("0xabc", [9, 9, 9, 9])), 4)
        assert [[each.number for each in answer[rank].groups] for rank in range(4)] == [[9], [9], [5, 9], [4, 9]]

    @pytest.mark.parametrize(("missing", "lost"), [({"dead": True}, "dead"), ({"unresponsive": True}, "unresponsive")])
    def test_a_rank_that_does_not_answer_is_lost(self, missing: dict[str, bool], lost: str) -> None:
        answer = read_answer(a_report(a_communicator("0xabc", [9, 9], missing=[a_missing(2, **missing)])), 3)
        assert answer[2] == ((), lost)

    def test_a_rank_that_has_left_the_communicator_is_not_lost(self) -> None:
        answer = read_answer(a_report(a_communicator("0xabc", [9, 9], missing=[a_missing(2)])), 3)
        assert 2 not in answer

    def test_an_answer_about_another_gang_is_refused(self) -> None:
        with pytest.raises(NoAnswer, match="all 8 ranks"):
            read_answer(a_report(a_communicator("0xabc", [9, 9])), 8)

    def test_names_of_any_kind_become_short_and_printable(self) -> None:
        answer = read_answer(a_report(a_communicator("\x1b[2J" * 1000, [9, 9])), 2)
        assert answer[0].groups[0].group.isprintable()
        assert len(answer[0].groups[0].group) <= 64

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"NCCL version 2.24.3\nJob summary",
            b"{}",
            b"[" * 100_000,
            b'{"communicators": [{}]}',
            b"\xff" * 9,
            a_report(a_communicator("0xabc", [9, 9]))[:-20],
            a_report(a_communicator("0xabc", [-5, 9])),
        ],
    )
    def test_what_is_no_answer_is_refused(self, data: bytes) -> None:
        with pytest.raises(NoAnswer):
            read_answer(data, 2)


class TestServersThatDoHarm:
    def test_an_endless_answer_is_cut_off(self) -> None:
        with serving(_endless) as server, pytest.raises(CannotRead, match=f"more than {LARGEST_ANSWER:,} bytes"):
            asked(server, 2)

    @pytest.mark.parametrize("greeting", ["HTTP/1.1 400 Bad Request", "x" * 100_000, "\x1b[2J", "ERROR: no"])
    def test_a_server_of_another_kind_is_left_alone(self, greeting: str) -> None:
        with serving(a_report(), greeting) as server, pytest.raises(CannotRead) as caught:
            asked(server, 2)
        assert str(caught.value).isprintable()
        assert "VERBOSE STATUS" not in server.heard

    def test_a_server_that_says_nothing_is_left_at_the_deadline(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(CannotRead):
            ask_ras(2, SAFE, host="127.0.0.1", port=silent.getsockname()[1], deadline_s=0.1)

    def test_an_answer_in_drops_ends_at_the_deadline(self) -> None:
        times = iter(range(10_000))
        with serving(_endless) as server, pytest.raises(CannotRead, match="in time"):
            asked(server, 2, now=lambda: next(times) / 10)

    def test_no_server_is_no_answer(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        with pytest.raises(CannotRead, match="refused"):
            ask_ras(2, SAFE, host="127.0.0.1", port=port)


class TestVersion:
    @pytest.mark.parametrize(
        ("text", "version"),
        [
            ("node:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.9", (2, 27, 3)),
            ("Prints the NCCL version info only", None),
            ("NCCL version 2.27", None),
            ("NCCL version 99999999999.1.1", None),
        ],
    )
    def test_it_is_what_nccl_prints(self, text: str, version: Version | None) -> None:
        assert find_version(text) == version

    def test_a_library_has_it_as_text(self, tmp_path: Path) -> None:
        library = tmp_path / "libnccl.so.2"
        library.write_bytes(b"\x7fELF" + bytes(5000) + b"on NCCL version info\0NCCL version 2.30.7+cuda13.3\0")
        assert version_of_library(str(library)) == (2, 30, 7)
        for before in range(20):
            library.write_bytes(bytes((1 << 20) - before) + b"NCCL version 2.30.12+cuda13.3\0")
            assert version_of_library(str(library)) == (2, 30, 12), "over the border of two pieces"
        library.write_bytes(b"\x7fELF")
        assert version_of_library(str(library)) is None


def _endless(connection: socket.socket) -> None:
    while True:
        connection.sendall(b" " * (1 << 20))
