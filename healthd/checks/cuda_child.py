"""
Copies to and from one GPU through the CUDA driver, for two checks: `cuda_child.py TASK PCI CPUS SECONDS AMOUNT`.

Started by path as a separate process, because a sick driver never answers. Prints one JSON object. TASK `bandwidth`:
AMOUNT is the MiB of each copy; the result is the best of several. TASK `memory`: AMOUNT is the share of the free memory
that is written with a pattern and its inverse, and read back. CPUS: the processors next to the GPU, as `0-31,64-95`, or
empty.

Only the standard library is imported, and of CUDA only the functions that `libcuda.so.1` has had since CUDA 4.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

MIB = 1 << 20
COPIES = 5
LARGEST_BLOCK = 16 * MIB
"""Large enough for the full speed. Several of these are held on the host, by as many processes as there are GPUs."""
SLIDE = 4096
"""Each block gets the pattern from another offset of the source, so that a write to a wrong address is detected."""
_GRACE = 5
_OUT_OF_MEMORY = 2
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_SEED = 20261121


class CudaFailed(Exception):
    """A call of CUDA that did not succeed."""

    def __init__(self, call: str, code: int, error_name: str) -> None:
        super().__init__(f"{call}: {error_name} ({code})")
        self.code = code


class Cuda:
    """`libcuda.so.1` with a context on one GPU. Raises OSError where there is no library, Failed for all else."""

    def __init__(self, pci: str) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGetByPCIBusId", ctypes.byref(device), pci.encode())
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)

    def call(self, name: str, *arguments: Any) -> None:
        """Raises Failed."""
        code = getattr(self._library, name)(*arguments)
        if code:
            error_name = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(error_name))
            raise CudaFailed(name, code, (error_name.value or b"some error").decode())

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the GPU."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def on_device(self, size: int) -> ctypes.c_uint64:
        """*size* bytes of the GPU."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def pinned(self, size: int) -> int:
        """The address of *size* bytes of pinned host memory: only pinned memory is copied at the full speed."""
        address = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), 0)
        return int(address.value or 0)

    def write(self, to: ctypes.c_uint64, source: int, size: int) -> None:
        """Host to GPU."""
        self.call("cuMemcpyHtoD_v2", to, ctypes.c_void_p(source), ctypes.c_size_t(size))

    def read(self, to: int, source: ctypes.c_uint64, size: int) -> None:
        """GPU to host."""
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(to), source, ctypes.c_size_t(size))


def bandwidth(cuda: Cuda, mib: float) -> dict[str, float]:
    """GB/s in both directions: the best of several copies, because other programs can only slow one down."""
    size = int(mib * MIB)
    there, here = cuda.on_device(size), cuda.pinned(size)
    return {
        "to_gpu_gbps": round(_best(lambda: cuda.write(there, here, size), size), 2),
        "from_gpu_gbps": round(_best(lambda: cuda.read(here, there, size), size), 2),
    }


def _best(copy: Callable[[], None], size: int) -> float:
    copy()  # the first copy also wakes the link up
    fastest = float("inf")
    for _ in range(COPIES):
        began = time.perf_counter()
        copy()
        fastest = min(fastest, time.perf_counter() - began)
    return size / fastest / 1e9


def memory(cuda: Cuda, share: float) -> dict[str, Any]:
    """Write a pattern everywhere, read it back; then its inverse. All memory is written before any is read."""
    free, total = cuda.memory()
    result: dict[str, Any] = {"free_mib": free // MIB, "total_mib": total // MIB}
    size = min(LARGEST_BLOCK, max(SLIDE, int(free * share)) // SLIDE * SLIDE)
    blocks = _blocks(cuda, int(free * share) // size, size)
    if not blocks:
        return result | {"tested_mib": 0, "wrong": []}
    pattern = random.Random(_SEED).randbytes(size + SLIDE)
    wrong: list[dict[str, int]] = []
    source, back = cuda.pinned(size + SLIDE), cuda.pinned(size)
    for bits in (pattern, _inverse(pattern)):
        ctypes.memmove(source, bits, len(bits))
        for number, block in enumerate(blocks):
            cuda.write(block, source + _slide(number), size)
        for number, block in enumerate(blocks):
            cuda.read(back, block, size)
            if found := _difference(back, source + _slide(number), size):
                wrong.append({"block": number, **found})
    return result | {"tested_mib": len(blocks) * size // MIB, "wrong": wrong[:8], "wrong_blocks": len(wrong)}


def _blocks(cuda: Cuda, count: int, size: int) -> list[ctypes.c_uint64]:
    """Up to *count* blocks: memory may be fragmented."""
    blocks: list[ctypes.c_uint64] = []
    try:
        while len(blocks) < count:
            blocks.append(cuda.on_device(size))
    except CudaFailed as error:
        if error.code != _OUT_OF_MEMORY:
            raise
    return blocks


def _slide(number: int) -> int:
    return number * 8 % SLIDE


def _inverse(pattern: bytes) -> bytes:
    every_bit = (1 << 8 * len(pattern)) - 1
    return (int.from_bytes(pattern, "little") ^ every_bit).to_bytes(len(pattern), "little")


def _difference(one: int, other: int, size: int) -> dict[str, int]:
    """The first byte in which two pieces of memory differ. Empty where they do not."""
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    if not compare(one, other, size):
        return {}
    low, high = 0, size  # they differ in this range, and not before `low`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if compare(one + low, other + low, middle - low) else (middle, high)
    read, wrote = (ctypes.c_ubyte.from_address(base + low).value for base in (one, other))
    return {"offset": low, "read": read, "wrote": wrote}


def _stay_near(cpus: str) -> None:
    """Run on processors next to the GPU, so that the host memory is there too. Best effort: it may not be permitted."""
    wanted: set[int] = set()
    for span in filter(None, cpus.split(",")):
        first, _, last = span.partition("-")
        wanted.update(range(int(first), int(last or first) + 1))
    if allowed := wanted & os.sched_getaffinity(0):
        os.sched_setaffinity(0, allowed)


TASKS: dict[str, Callable[[Cuda, float], dict[str, Any]]] = {"bandwidth": bandwidth, "memory": memory}


def main() -> None:
    """What the driver's library prints goes to stderr, the answer to the original stdout."""
    task, pci, cpus, seconds, amount = sys.argv[1:6]
    signal.alarm(int(float(seconds)) + _GRACE)  # its default ends a process that hangs in C code, also an orphan
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    answer = os.dup(1)
    os.dup2(2, 1)
    _stay_near(cpus)
    try:
        result = TASKS[task](Cuda(pci), float(amount))
    except OSError as error:
        result = {"missing": str(error)}
    except AttributeError as error:
        result = {"failed": f"the driver's library lacks a function: {error}"}
    except CudaFailed as error:
        result = {"failed": str(error)}
    with os.fdopen(answer, "w") as stdout:
        json.dump(result, stdout)


if __name__ == "__main__":
    main()
