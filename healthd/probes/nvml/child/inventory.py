"""
Calls NVML once and prints the answer as JSON. Runs as a separate process, because a sick driver never answers.

Started by path, and imports almost nothing of healthd: it must start fast and end whatever happens to its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import pynvml

sys.path.append(os.path.abspath(f"{__file__}/../../../../.."))  # noqa: PTH100 - as in `watch`

from healthd.probes.nvml.child import symbols


def read_device(index: int) -> dict[str, Any]:
    """One GPU as NVML reports it. Raises NVMLError."""
    handle = symbols.handle(index)
    return {
        "index": index,
        "pci": symbols.bus_id(handle),
        "uuid": symbols.text(pynvml.nvmlDeviceGetUUID(handle)),
        "serial": read_serial(handle),
        "name": symbols.text(pynvml.nvmlDeviceGetName(handle)),
    }


def read_serial(handle: Any) -> str:
    """The serial number of the GPU's board. Empty where there is none, as on consumer products."""
    try:
        return symbols.text(pynvml.nvmlDeviceGetSerial(handle))
    except pynvml.NVMLError:
        return ""


def read_all() -> dict[str, Any]:
    """All GPUs. One that does not answer is listed separately, and does not hide the others."""
    devices: list[dict[str, Any]] = []
    unreadable: list[str] = []
    try:
        symbols.initialise()
        count = symbols.count()
    except pynvml.NVMLError as error:
        return {"reason": f"NVML: {error}"}
    for index in range(count):
        try:
            devices.append(read_device(index))
        except pynvml.NVMLError as error:
            unreadable.append(f"GPU {index}: {error}")
    return {"devices": devices, "unreadable": unreadable}


def main() -> None:
    """`inventory.py SECONDS` prints one JSON object; what the driver's library prints goes to stderr instead."""
    signal.alarm(int(sys.argv[1]) + 1)  # its default ends a process that hangs in C code, also if nothing else can
    answer = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(answer, "w") as stdout:
        json.dump(read_all(), stdout)


if __name__ == "__main__":
    main()
