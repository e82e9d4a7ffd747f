"""Builds what checks know of a machine."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from healthd.checks.check import CheckContext, Expected
from healthd.checks.devices import GpuInfo, PortInfo, by_name
from healthd.core.diagnosis.readings import Reading, Sample

GPU0, GPU1 = "0000:3b:00.0", "0000:3c:00.0"
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def a_gpu(pci: str = GPU0, **changed: Any) -> GpuInfo:
    """One that is well, unless *changed*."""
    usual: dict[str, Any] = {"index": 0, "state": "ok", "name": "NVIDIA H100 80GB HBM3", "processes": 0}
    link = {"nvlinks_up": 18, "nvlinks": 18, "pcie_width": 16, "pcie_full_width": 16, "pcie_generation": 5}
    return GpuInfo(pci=pci, **{**usual, **link, **changed})


def a_port(device: str = "mlx5_0", **changed: Any) -> PortInfo:
    """One that is up, unless *changed*."""
    usual: dict[str, Any] = {"port": 1, "pci": "0000:5b:00.0", "family": "ib", "state": "up", "rate_gbps": 400}
    return PortInfo(device=device, **{**usual, **changed})


def a_context(
    *gpus: GpuInfo,
    ports: tuple[PortInfo, ...] = (),
    readings: tuple[Reading, ...] = (),
    expected: Expected | None = None,
    unread: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    ends: float = float("inf"),
    sys: Path = Path("/nowhere"),
) -> CheckContext:
    """A machine with *gpus*; *readings* are what else is known."""
    return CheckContext(
        gpus=list(gpus),
        ports=list(ports),
        places=by_name([Sample(source="test", at=NOW, readings=readings)]),
        unread=unread or {},
        expected=expected or Expected(),
        environ=environ or {},
        ends=ends,
        sys=sys,
    )


def a_program(folder: Path, name: str, script: str) -> dict[str, str]:
    """An installed program that is a shell *script*; answers the environment in which it is found."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def is_gone(pid: int) -> bool:
    """Whether a process that was killed is no more, or waits for nothing but its parent's word; False: it lives on."""
    gives_up = time.monotonic() + 10
    while time.monotonic() < gives_up:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        os.sched_yield()
    return False
