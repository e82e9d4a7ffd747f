"""
The script that `tests.bench.lost_links` starts: ranks that exchange data in one way, step after step, for ever.

`python _linked_trainer.py WAY RANK ADDRESS…` has an address for each rank. As with a launcher's store, each rank keeps
a connection with rank 0 beside that, on which nothing is sent.
"""

from __future__ import annotations

import random
import socket
import sys
import time
from collections.abc import Collection, Sequence

PORT = 29500
SIZE = 8192
"""Bytes of a message."""
WORK = 0.05
"""Seconds of a step at most, without the exchange."""


def peers_of(rank: int, world: int, way: str) -> set[int]:
    """With whom *rank* exchanges data."""
    if way == "star":
        return set(range(1, world)) if rank == 0 else {0}
    if way == "ring":
        return {(rank + 1) % world, (rank - 1) % world}
    if way == "tree":
        near = {2 * rank + 1, 2 * rank + 2, *([(rank - 1) // 2] if rank else [])}
        return {each for each in near if each < world}
    return set(range(world)) - {rank}


def connect(rank: int, addresses: Sequence[str], way: str) -> tuple[dict[int, socket.socket], list[socket.socket]]:
    """The connections of *rank* by its peers, and those on which nothing is sent."""
    world, links, idle = len(addresses), dict[int, socket.socket](), list[socket.socket]()
    peers = peers_of(rank, world, way)
    with socket.create_server(("", PORT), backlog=4 * world) as server:
        for peer in sorted(each for each in peers if each < rank):
            links[peer] = _connected(addresses[peer], rank, is_idle=False)
        if rank:
            idle.append(_connected(addresses[0], rank, is_idle=True))
        for _ in range(len([each for each in peers if each > rank]) + (0 if rank else world - 1)):
            link, _ = server.accept()
            number, is_idle = receive(link, 2)
            if is_idle:
                idle.append(link)
            else:
                links[number] = link
    return links, idle


def _connected(address: str, rank: int, *, is_idle: bool) -> socket.socket:
    while True:
        try:
            link = socket.create_connection((address, PORT))
        except OSError:  # it is not there yet
            time.sleep(0.05)
            continue
        link.sendall(bytes([rank, is_idle]))
        return link


def receive(link: socket.socket, size: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < size:
        data += link.recv(size - len(data))
    return data


def exchange(rank: int, world: int, way: str, links: dict[int, socket.socket]) -> None:
    """All ranks have come to it when it returns."""

    def give(peers: Collection[int]) -> None:
        for peer in peers:
            links[peer].sendall(bytes(SIZE))

    def take(peers: Collection[int]) -> None:
        for peer in peers:
            receive(links[peer], SIZE)

    if way in ("star", "tree"):
        above = [each for each in links if each < rank]
        below = sorted(each for each in links if each > rank)
        take(below)
        give(above)
        take(above)
        give(below)
    elif way == "ring":
        for _ in range(world - 1):
            give([(rank + 1) % world])
            take([(rank - 1) % world])
    else:
        give(list(links))
        take(sorted(links))


def main(way: str, rank: int, addresses: Sequence[str]) -> None:
    """Exchange without end."""
    links, idle = connect(rank, addresses, way)
    print("connected", len(links), len(idle), flush=True)
    while True:
        time.sleep(random.uniform(0, WORK))
        exchange(rank, len(addresses), way, links)
        print("step", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
