"""
The GPUs of this machine, as NVML lists them.

A failing driver can block its caller for ever, so a child calls NVML, and is abandoned when its time is up. No answer
is a value with a reason: a machine without GPUs is no error, and a probe that fails is no evidence about the hardware.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from healthd.core.api import Device

DEADLINE = timedelta(seconds=20)
"""A healthy driver answers in a second or two, but the first call after boot may initialise every GPU."""

_REAP = 1.0
"""Seconds that a killed child has to end."""
_CHILD = Path(__file__).with_name("child") / "inventory.py"
_PCI = re.compile(r"([0-9a-fA-F]+):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")


class NvmlInventory(msgspec.Struct, frozen=True, kw_only=True):
    """NVML's answer. No devices and a *reason*: it could not be called, or returned an error."""

    devices: list[Device] = []
    reason: str = ""
    unreadable: list[str] = []
    """GPUs that are there but did not answer, with NVML's words."""


def inventory(deadline: timedelta = DEADLINE, *, environ: Mapping[str, str] | None = None) -> NvmlInventory:
    """The GPUs, in NVML's order. Blocks up to *deadline*; raises nothing. *environ*: the child's, default our own."""
    try:
        answer = _ask(deadline, environ)
    except subprocess.TimeoutExpired:
        return NvmlInventory(reason=f"NVML did not answer within {deadline.total_seconds():g} s: the driver may hang")
    except OSError as error:
        return NvmlInventory(reason=f"NVML could not be asked: {error}")
    if isinstance(answer, int):
        return NvmlInventory(reason=f"NVML could not be asked: the child that asks it ended with status {answer}")
    return parse_inventory(answer)


def parse_inventory(answer: bytes) -> NvmlInventory:
    """The child's JSON, with addresses in healthd's form. Anything else becomes a reason."""
    try:
        inventory = msgspec.json.decode(answer, type=NvmlInventory)
        devices = [msgspec.structs.replace(device, pci=parse_pci(device.pci)) for device in inventory.devices]
    except (msgspec.DecodeError, ValueError) as error:
        return NvmlInventory(reason=f"NVML's answer makes no sense: {error}")
    return msgspec.structs.replace(inventory, devices=devices)


def parse_pci(bus_id: str) -> str:
    """`00000000:3B:00.0` as `0000:3b:00.0`. Raises ValueError."""
    match = _PCI.fullmatch(bus_id)
    if match is None:
        raise ValueError(f"{bus_id!r} is not a PCI address")
    domain, bus, device, function = match.groups(default="0")
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


def _ask(deadline: timedelta, environ: Mapping[str, str] | None) -> bytes | int:
    """What the child printed, or its exit status instead. Raises OSError, TimeoutExpired."""
    seconds = deadline.total_seconds()
    # -P: no module of the current directory may replace a real one.
    command = [sys.executable, "-P", str(_CHILD), str(math.ceil(seconds))]
    child = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        answer, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _abandon(child)
        raise
    return answer if child.returncode == 0 else child.returncode


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """Kill it, but do not wait for long: inside a stuck driver call not even SIGKILL has an effect."""
    child.kill()
    if child.stdout:
        child.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_REAP)
