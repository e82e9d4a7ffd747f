"""
One look at this machine's GPUs, for a person: `python -m healthd.probes.nvml.transcript`.

Prints JSON: how long the first look took, every reading, and what would be told at once. For a report of how healthd
gets on with a driver or GPU that it has not met; it changes nothing and needs no configuration.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from typing import Any

from healthd.clock import SystemClock
from healthd.core.diagnosis.readings import Look
from healthd.core.diagnosis.signals.engine import Engine
from healthd.core.diagnosis.signals.nvml import RULES
from healthd.probes.nvml.health import Nvml
from healthd.probes.nvml.process import Pace, Process

LONGEST = 120.0
"""Seconds for the first answer."""
_LOOKS = 3


def main() -> int:
    """0: NVML answered. 1: it did not, and what is printed says why."""
    probe, engine, clock = Nvml(Process(Pace(every=timedelta(seconds=2)))), Engine(RULES), SystemClock()
    begun, took, looks, last = time.monotonic(), 0.0, 0, None
    while looks < _LOOKS and time.monotonic() - begun < LONGEST:
        look = probe.look(clock.now())
        if look.trouble or (probe.responds() and not look.readings):
            break
        if look.readings and look is not last:
            took = took or time.monotonic() - begun
            engine.take(look)
            looks += 1
        last = look
        probe.wait(0.5)
    probe.close()
    print(json.dumps(said(look, took, engine), indent=1))
    return 0 if looks else 1


def said(look: Look, took: float, engine: Engine) -> dict[str, Any]:
    """Readings by device; those of parts as one list for each name."""
    devices: dict[str, dict[str, Any]] = {}
    for reading in look.readings:
        values = devices.setdefault(reading.device, {})
        if reading.part:
            values.setdefault(f"{reading.name} of {reading.part.split()[0]}s", []).append(reading.value)
        else:
            values[reading.name] = reading.value
    told = [f"{bad.device} {bad.rule.name}: {bad.text}" for bad in engine.bad()]
    return {"trouble": look.trouble, "seconds to the first look": round(took, 2), "told": told, "devices": devices}


if __name__ == "__main__":
    sys.exit(main())
