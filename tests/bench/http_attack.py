"""
What callers with bad intent do to the HTTP server: `python -m tests.bench.http_attack [--connections N] [--seconds S]`.

For each attack a fresh server with the two ports of a pod, metrics of 5,000 series, and a process that keeps N
connections open to the metrics' port and makes a new one whenever one is closed. Meanwhile /healthz is asked at the
probes' port, as the kubelet does, and /metrics at the attacked port from another address, as Prometheus does. An answer
runs from the connect to its last byte; memory is the server's peak (VmHWM) above its start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench._figures import machine, spread

SERIES = 5000
ATTACKER, PROMETHEUS = "127.0.0.1", "127.0.0.2"
PATIENCE = 5.0
"""Seconds: of the kubelet's probes in the manifests. Prometheus waits twice as long."""
PAUSE = 0.1


class Attack(NamedTuple):
    """What one connection sends at first, and then again and again; with nothing more to send it reads, slowly."""

    opening: bytes
    then: bytes = b""
    every: float = 0.0


_HEADER = b"X-Filler: " + b"x" * 4000 + b"\r\n"
_GET, _POST = (method + b" /metrics HTTP/1.1\r\nHost: x\r\n" for method in (b"GET", b"POST"))
ATTACKS = {
    "silence": Attack(b""),
    "unfinished headers": Attack(_GET),
    "headers, drop by drop": Attack(_GET, b"X-Drop: x\r\n", every=0.5),
    "headers without end": Attack(_GET, _HEADER, every=0.01),
    "a line without end": Attack(b"GET /", b"x" * 1000, every=0.01),
    "a body without end": Attack(_POST + b"Content-Length: 9999999999\r\n\r\n", b"x" * 65536),
    "chunks without end": Attack(_GET + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1000),
    "a late body": Attack(_POST + b"Content-Length: 9\r\n\r\n"),
    "reads a byte a second": Attack(_GET + b"\r\n"),
    "pipelined requests": Attack(b"", (_GET + b"\r\n") * 1000),
    "upgrade": Attack(_GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"x" * 65536),
    "garbage": Attack(b"", bytes(range(256)) * 16),
}


class Result(NamedTuple):
    """Seconds of each answer in time, how many there were not, and MB."""

    probes: list[float]
    probes_unanswered: int
    scrapes: list[float]
    scrapes_unanswered: int
    megabytes: int
    megabytes_more: int

    def figures(self) -> dict[str, Any]:
        """As printed: ms."""
        return {
            "/healthz ms": spread([1000 * each for each in self.probes or [PATIENCE]], 1),
            "/healthz unanswered": self.probes_unanswered,
            "/metrics ms": spread([1000 * each for each in self.scrapes or [2 * PATIENCE]], 1),
            "/metrics unanswered": self.scrapes_unanswered,
            "peak MB": self.megabytes,
            "of it, by the attack": self.megabytes_more,
        }


def main() -> int:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--attack", nargs=2, metavar=("NAME", "PORT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(_serve())
    elif args.attack:
        asyncio.run(_attack(ATTACKS[args.attack[0]], int(args.attack[1]), args.connections))
    else:
        figures = {name: suffer(name, args.connections, args.seconds).figures() for name in ATTACKS}
        print(json.dumps({**figures, "connections": args.connections, "machine": machine()}, indent=2))
    return 0


def suffer(name: str, connections: int, seconds: float) -> Result:
    """One attack on a fresh server."""
    with _program("--serve") as server:
        metrics, probes = (int(port) for port in _line(server).split())
        _answer(metrics, "/metrics", PROMETHEUS, 2 * PATIENCE)
        before = _peak(server.pid)
        asked: list[float | None] = []
        scraped: list[float | None] = []
        with _program("--attack", name, str(metrics), "--connections", str(connections)) as attacker:
            _line(attacker)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                asked.append(_answer(probes, "/healthz", ATTACKER, PATIENCE))
                if len(asked) % 10 == 1:
                    scraped.append(_answer(metrics, "/metrics", PROMETHEUS, 2 * PATIENCE))
                time.sleep(PAUSE)
        after = _peak(server.pid)
    return Result(
        [each for each in asked if each is not None],
        asked.count(None),
        [each for each in scraped if each is not None],
        scraped.count(None),
        after,
        after - before,
    )


async def _serve() -> None:
    from healthd.telemetry.http import serve
    from healthd.telemetry.metrics import Metrics
    from healthd.telemetry.pages import metrics_pages, probe_pages

    metrics = Metrics()
    for number in range(SERIES):
        metrics.findings_raised.labels(f"rule-{number}").inc()
    async with (
        await serve("127.0.0.1:0", metrics_pages(metrics)) as first,
        await serve("127.0.0.1:0", probe_pages({})) as second,
    ):
        print(first.address.port, second.address.port, flush=True)
        await asyncio.Event().wait()


async def _attack(attack: Attack, port: int, connections: int) -> None:
    attackers = [asyncio.create_task(_hold(attack, port)) for _ in range(connections)]
    print("begun", flush=True)
    await asyncio.gather(*attackers)


async def _hold(attack: Attack, port: int) -> None:
    """One connection after the other, each as long as the server lets it be."""
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.bind((ATTACKER, 0))
            try:
                await loop.sock_connect(connection, ("127.0.0.1", port))
                await loop.sock_sendall(connection, attack.opening)
                while attack.then:
                    await loop.sock_sendall(connection, attack.then)
                    await asyncio.sleep(attack.every)
                while await loop.sock_recv(connection, 1):  # noqa: ASYNC110 - the slowness is the attack
                    await asyncio.sleep(1)
            except OSError:
                await asyncio.sleep(0)


@contextmanager
def _program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.bench.http_attack", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program
        finally:
            program.kill()


def _line(program: subprocess.Popen[str]) -> str:
    assert program.stdout
    return program.stdout.readline()


def _answer(port: int, path: str, source: str, patience: float) -> float | None:
    """Seconds until the whole answer was here; None when it was not, in time."""
    begun = time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=patience, source_address=(source, 0)) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while got := connection.recv(1 << 20):
                answer += got
                connection.settimeout(max(0.001, begun + patience - time.monotonic()))
    except OSError:
        return None
    return time.monotonic() - begun if b" 200 OK" in answer[:20] else None


def _peak(pid: int) -> int:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) // 1024


if __name__ == "__main__":
    sys.exit(main())
