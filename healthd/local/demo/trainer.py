"""
The demo's training job: real data-parallel gradient descent, with the standard library alone.

Each batch has a fixed number of parts, which the ranks share. Gradients are added over TCP in the order of the parts,
never in the order of arrival. So a run ends with the same weights bit for bit, with or without interruptions, and on
any number of ranks. A rank waits for a lost peer without end, as NCCL does: only a supervisor of the gang can end
that.

A plain script that imports nothing from healthd: `python trainer.py --steps 60 --checkpoint DIR`, once for each RANK
of WORLD_SIZE. It resumes from HEALTHD_RESUME_FROM when that is set, and from nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import signal
import socket
import struct
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import mul
from pathlib import Path
from typing import NamedTuple, NoReturn

SIZES = (2, 16, 16, 1)
"""Neurons of each layer, the inputs first."""
PARTS = 12
"""Parts of every batch: the unit in which ranks share the work, and the order in which gradients are added."""
SAMPLES = 8
"""Samples in a part."""
RATE = 0.03
INERTIA = 0.5
SPREAD = 2.5
"""Of the first weights: large enough that the loss falls for a while."""
INDEX = "model.safetensors.index.json"


class Tensor(NamedTuple):
    """A named range of the flat list with all weights (and of the flat list with their momenta)."""

    name: str
    shape: tuple[int, ...]
    begin: int

    @property
    def end(self) -> int:
        """The start of the next tensor."""
        return self.begin + math.prod(self.shape)


def _layout() -> Iterator[Tensor]:
    begin = 0
    for number, (inputs, outputs) in enumerate(pairwise(SIZES)):
        weight = Tensor(f"layers.{number}.weight", (outputs, inputs), begin)
        bias = Tensor(f"layers.{number}.bias", (outputs,), weight.end)
        yield from (weight, bias)
        begin = bias.end


LAYOUT = tuple(_layout())
LAYERS = tuple(zip(LAYOUT[::2], LAYOUT[1::2], strict=True))
"""Weight and bias of each layer."""
WEIGHTS = LAYOUT[-1].end


@dataclass
class TrainingState:
    """All data that training keeps from one step to the next."""

    step: int
    weights: list[float]
    momenta: list[float]


def fresh() -> TrainingState:
    """Step 0: random weights, the same in every run."""
    dice = random.Random(3)
    weights = [0.0] * WEIGHTS
    for weight, _ in LAYERS:
        spread = SPREAD / math.sqrt(weight.shape[1])
        weights[weight.begin : weight.end] = [dice.gauss(0, spread) for _ in range(weight.begin, weight.end)]
    return TrainingState(0, weights, [0.0] * WEIGHTS)


def samples(step: int, part: int) -> Iterator[tuple[list[float], float]]:
    """The points of one part of one step's batch: inputs, and the value to learn."""
    dice = random.Random(step * PARTS + part)
    for _ in range(SAMPLES):
        x, y = dice.uniform(-1, 1), dice.uniform(-1, 1)
        yield [x, y], math.sin(2 * x) * math.cos(y)


def activate(weights: Sequence[float], inputs: list[float]) -> list[list[float]]:
    """The output of each layer, the inputs first. All layers but the last use tanh."""
    values = [inputs]
    for weight, bias in LAYERS:
        outputs, width = weight.shape
        rows = (weights[weight.begin + j * width : weight.begin + (j + 1) * width] for j in range(outputs))
        sums = [weights[bias.begin + j] + sum(map(mul, row, values[-1])) for j, row in enumerate(rows)]
        values.append(sums if bias is LAYOUT[-1] else [math.tanh(value) for value in sums])
    return values


def add_gradient(gradient: list[float], weights: Sequence[float], inputs: list[float], target: float) -> float:
    """Add the gradient of one sample to *gradient* (back-propagation). Returns its squared error."""
    values = activate(weights, inputs)
    error = values[-1][0] - target
    deltas = [error]
    for (weight, bias), before in zip(reversed(LAYERS), reversed(values[:-1]), strict=True):
        width = len(before)
        for j, delta in enumerate(deltas):
            gradient[bias.begin + j] += delta
            row = weight.begin + j * width
            for i, value in enumerate(before):
                gradient[row + i] += delta * value
        deltas = [
            (1 - value * value) * sum(d * weights[weight.begin + j * width + i] for j, d in enumerate(deltas))
            for i, value in enumerate(before)
        ]
    return error * error


def part_sum(weights: Sequence[float], step: int, part: int) -> list[float]:
    """The gradient of one part of a batch. The last element is the sum of its squared errors."""
    gradient = [0.0] * WEIGHTS
    errors = 0.0
    for inputs, target in samples(step, part):
        errors += add_gradient(gradient, weights, inputs, target)
    return [*gradient, errors]


def advance(state: TrainingState, total: Sequence[float]) -> float:
    """One step down the gradient *total*, the sum over the whole batch. Returns the mean loss of that batch."""
    for i in range(WEIGHTS):
        state.momenta[i] = INERTIA * state.momenta[i] - RATE * total[i] / (PARTS * SAMPLES)
        state.weights[i] += state.momenta[i]
    state.step += 1
    return total[WEIGHTS] / (PARTS * SAMPLES)


class RankGroup:
    """The ranks of one attempt: a star with rank 0 in the middle. Every call is collective: each rank makes it."""

    def __init__(self, rank: int, world: int, address: str, port: int) -> None:
        self.rank = rank
        self.world = world
        self._links = _accept(world, address, port) if rank == 0 else [_connect(rank, address, port)]

    def add(self, mine: dict[int, list[float]]) -> list[float]:
        """The sum of all parts of all ranks, added in the order of the parts' numbers."""
        if self.rank:
            _send(self._links[0], [value for part in sorted(mine) for value in mine[part]])
            return _receive(self._links[0])
        parts = dict(mine)
        for rank, link in enumerate(self._links, start=1):
            parts.update(_split(_receive(link), parts_of(rank, self.world)))
        total: list[float] = []
        for part in sorted(parts):
            total = [a + b for a, b in zip(total, parts[part], strict=True)] if total else parts[part]
        for link in self._links:
            _send(link, total)
        return total

    def wait(self) -> None:
        """A barrier: return when every rank has called it."""
        self.add({})


def parts_of(rank: int, world: int) -> list[int]:
    """The parts of a batch that *rank* works on."""
    return list(range(rank, PARTS, world))


def _split(values: list[float], parts: list[int]) -> Iterator[tuple[int, list[float]]]:
    width = WEIGHTS + 1
    yield from ((part, values[i * width : (i + 1) * width]) for i, part in enumerate(parts) if values)


def _accept(world: int, address: str, port: int) -> list[socket.socket]:
    links: dict[int, socket.socket] = {}
    if world == 1:
        return []
    with socket.create_server((address, port), backlog=world) as server:
        while len(links) < world - 1:
            link, _ = server.accept()
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            links[int(_receive(link)[0])] = link
    return [links[rank] for rank in sorted(links)]


def _connect(rank: int, address: str, port: int) -> socket.socket:
    while True:
        try:
            link = socket.create_connection((address, port))
        except ConnectionRefusedError:  # rank 0 does not listen yet
            time.sleep(0.02)
            continue
        if link.getsockname() == link.getpeername():  # no listener: the kernel connected the socket to itself
            link.close()
            continue
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _send(link, [float(rank)])
        return link


def _send(link: socket.socket, values: Sequence[float]) -> None:
    payload = array("d", values).tobytes()
    try:
        link.sendall(struct.pack("<I", len(payload)) + payload)
    except OSError as error:
        _stall(error)


def _receive(link: socket.socket) -> list[float]:
    (size,) = struct.unpack("<I", _read(link, 4))
    return array("d", _read(link, size)).tolist()


def _read(link: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        try:
            chunk = link.recv(size - len(chunks))
        except OSError as error:
            _stall(error)
        if not chunk:
            _stall(ConnectionResetError("it closed the connection"))
        chunks += chunk
    return bytes(chunks)


def _stall(why: OSError) -> NoReturn:
    """A peer is lost. NCCL would wait for it in a kernel on the GPU: no error, no end."""
    log_line(f"waiting for a rank that is gone: {why}")
    while True:
        signal.pause()


def log_line(line: str) -> None:
    """Print one line and flush it."""
    print(line, flush=True)


def save(root: Path, state: TrainingState, gang: RankGroup, *, torn: bool = False) -> Path:
    """
    Write the checkpoint of this step: each rank writes its shard, then rank 0 writes the index, which completes it.

    With *torn*, one shard loses its end, as with a writer that does not wait until its data is on the disk.
    """
    folder = root / f"step-{state.step:06}"
    folder.mkdir(parents=True, exist_ok=True)
    shards = share_out(gang.world)
    name = shard_name(gang.rank, gang.world)
    data = encode_shard(state, shards[gang.rank])
    write_durably(folder / name, data[: len(data) * 2 // 3] if torn and gang.rank == gang.world - 1 else data)
    gang.wait()
    if gang.rank == 0:
        places = {tensor: shard_name(rank, gang.world) for rank, names in enumerate(shards) for tensor in names}
        index = {"metadata": {"step": state.step, "total_size": 2 * WEIGHTS * 8}, "weight_map": places}
        write_durably(folder / INDEX, json.dumps(index, indent=1).encode())
    gang.wait()
    return folder


def tensors_of(state: TrainingState) -> dict[str, tuple[tuple[int, ...], list[float]]]:
    """Every tensor of a checkpoint by name: shape, and values."""
    weights = {t.name: (t.shape, state.weights[t.begin : t.end]) for t in LAYOUT}
    momenta = {f"momentum.{t.name}": (t.shape, state.momenta[t.begin : t.end]) for t in LAYOUT}
    return weights | momenta


def share_out(world: int) -> list[list[str]]:
    """The names of the tensors that each rank writes."""
    names = [name for t in LAYOUT for name in (t.name, f"momentum.{t.name}")]
    return [names[rank::world] for rank in range(world)]


def shard_name(rank: int, world: int) -> str:
    """The shard name in the numbering of Hugging Face, from 1."""
    return f"model-{rank + 1:05}-of-{world:05}.safetensors"


def encode_shard(state: TrainingState, names: Sequence[str]) -> bytes:
    """A safetensors file: length of the header, header (JSON), the tensors without a gap."""
    header: dict[str, object] = {"__metadata__": {"step": str(state.step)}}
    data = b""
    tensors = tensors_of(state)
    for name in names:
        shape, values = tensors[name]
        raw = array("d", values).tobytes()
        header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_durably(path: Path, data: bytes) -> None:
    """
    Write all of it or nothing, also at a power loss: write a temporary file, flush it to the disk, then rename it.
    """
    aside = path.with_name(f"{path.name}.tmp")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def load(folder: Path) -> TrainingState:
    """Load exactly this checkpoint, whatever number of ranks wrote it."""
    index = json.loads((folder / INDEX).read_text())
    tensors: dict[str, list[float]] = {}
    for name in sorted(set(index["weight_map"].values())):
        tensors |= decode_shard((folder / name).read_bytes())
    weights = [value for t in LAYOUT for value in tensors[t.name]]
    momenta = [value for t in LAYOUT for value in tensors[f"momentum.{t.name}"]]
    return TrainingState(index["metadata"]["step"], weights, momenta)


def decode_shard(raw: bytes) -> dict[str, list[float]]:
    """The tensors of a safetensors file that `encode_shard` made."""
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    data = raw[8 + length :]
    places = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: array("d", data[begin:end]).tolist() for name, (begin, end) in places.items()}


def digest(state: TrainingState) -> str:
    """Equal for equal weights, bit for bit."""
    return hashlib.sha256(array("d", state.weights).tobytes()).hexdigest()[:16]


def train(options: argparse.Namespace, gang: RankGroup, resume_from: str, attempt: int) -> TrainingState:
    """Train all remaining steps."""
    state = load(Path(resume_from)) if resume_from else fresh()
    if gang.rank == 0:
        log_line(f"resumed from step {state.step}" if resume_from else f"start with {gang.world} ranks")
    while state.step < options.steps:
        if (state.step + 1, gang.rank, attempt) == (options.crash_at, options.crash_rank, options.crash_attempt):
            raise ZeroDivisionError("a bug of the training script, made up for the demo")
        mine = {part: part_sum(state.weights, state.step + 1, part) for part in parts_of(gang.rank, gang.world)}
        loss = advance(state, gang.add(mine))
        if gang.rank == 0:
            log_line(f"step {state.step} loss {loss:.6f}")
        if state.step % options.every == 0 or state.step == options.steps:
            folder = save(options.checkpoint, state, gang, torn=attempt == 0 and state.step == options.torn_at)
            if gang.rank == 0:
                log_line(f"saved {folder.name}")
        time.sleep(options.pace)
    return state


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A small real training job, one process for each rank.")
    parser.add_argument("--steps", type=int, default=60, help="how many steps in all")
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help="where checkpoints are written")
    parser.add_argument("--every", type=int, default=10, metavar="K", help="write a checkpoint every K steps")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="rest after each step")
    parser.add_argument("--torn-at", type=int, metavar="STEP", help="damage this checkpoint (first attempt only)")
    parser.add_argument("--crash-at", type=int, metavar="STEP", help="fail by software before this step")
    parser.add_argument("--crash-rank", type=int, default=0, metavar="R", help="the rank that fails")
    parser.add_argument("--crash-attempt", type=int, default=0, metavar="A", help="the attempt in which it fails")
    return parser.parse_args(argv)


def main() -> int:
    """Run one rank."""
    options = parse()
    environ = os.environ
    rank, world = int(environ.get("RANK", "0")), int(environ.get("WORLD_SIZE", "1"))
    gang = RankGroup(rank, world, environ.get("MASTER_ADDR", "127.0.0.1"), int(environ.get("MASTER_PORT", "29500")))
    attempt = int(environ.get("HEALTHD_ATTEMPT", "0"))
    state = train(options, gang, environ.get("HEALTHD_RESUME_FROM", ""), attempt)
    gang.wait()
    if rank == 0:
        log_line(f"done at step {state.step}, weights {digest(state)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
