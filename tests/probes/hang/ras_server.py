"""A server that speaks the protocol of NCCL's RAS, and answers as a job would, or as no job should."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

Report = Callable[[socket.socket], None]
"""Writes the answer to a question for the status."""


class RasServer:
    """Listens on a free port of this machine; *heard* are the lines that clients sent."""

    def __init__(self, report: Report, greeting: str = "SERVER PROTOCOL 2") -> None:
        self._report = report
        self._greeting = greeting
        self.heard: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        for line in connection.makefile("r"):
            self.heard.append(line.strip())
            match line.split():
                case ["CLIENT", "PROTOCOL", _]:
                    connection.sendall(f"{self._greeting}\n".encode())
                case ["VERBOSE", "STATUS"]:
                    self._report(connection)
                    return
                case _:
                    connection.sendall(b"OK\n")

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)


@contextmanager
def serving(report: Report | bytes, greeting: str = "SERVER PROTOCOL 2") -> Iterator[RasServer]:
    """A server that answers with *report*, until the end of the context."""
    server = RasServer(report if callable(report) else lambda connection: connection.sendall(report), greeting)
    try:
        yield server
    finally:
        server.close()


def a_report(*communicators: dict[str, Any]) -> bytes:
    """What NCCL 2.30 answers in JSON."""
    report = {
        "nccl_version": "2.30.9",
        "cuda_runtime_version": 13000,
        "timestamp": "2026-11-23 17:40:00",
        "communicators_count": len(communicators),
        "communicators": list(communicators),
        "ras": {"collection_time_sec": 0.004, "timeouts_count": 0},
    }
    return json.dumps(report, indent=2).encode()


def a_communicator(name: str, counts: Sequence[int], *, missing: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """The communicator of the ranks 0, 1, …, each of which has enqueued so many collectives as *counts* says."""
    return {
        "hash": name,
        "secondary_hash": "0x1:0x2",
        "size": len(counts) + len(missing),
        "ranks_count": len(counts),
        "missing_ranks_count": len(missing),
        "ranks": [a_member(rank, count) for rank, count in enumerate(counts)],
        "missing_ranks": list(missing),
    }


def a_member(rank: int, count: int, *, place: int | None = None) -> dict[str, Any]:
    """Rank *rank* of a communicator. *place* is its rank in the gang, where that is another one."""
    place = rank if place is None else place
    return {
        "rank": rank,
        "host": f"10.0.0.{place // 8}",
        "pid": 100 + place,
        "cuda_dev": place % 8,
        "nvml_dev": place % 8,
        "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
        "collective_counts": {"Broadcast": 1, "AllReduce": count - 1, "SendRecv": 0},
    }


def a_missing(rank: int, *, unresponsive: bool = False, dead: bool = False) -> dict[str, Any]:
    """A rank of which RAS has no data."""
    status = {"unresponsive": unresponsive, "considered_dead": dead}
    return {"rank": rank, "host": f"10.0.0.{rank // 8}", "pid": 100 + rank, "cuda_dev": rank % 8, "status": status}
