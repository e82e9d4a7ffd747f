"""
One sample of this machine's GPUs, for a person: `python -m healthd.probes.nvml.transcript`.

Prints JSON: how long the first sample took, every reading, and what would be reported at once. It is for a report of
how healthd works with a driver or GPU that is new to it. It changes nothing and needs no configuration.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from typing import Any

from healthd.clock import SystemClock
from healthd.core.diagnosis.readings import Sample
from healthd.core.diagnosis.signals.engine import Engine
from healthd.core.diagnosis.signals.gpus.nvml import RULES
from healthd.probes.nvml.health import Nvml
from healthd.probes.nvml.process import ChildProcess, Pace

LONGEST = 120.0
"""Seconds for the first answer."""
_SAMPLES = 3


def main() -> int:
    """0: NVML answered. 1: it did not, and the output has the reason."""
    probe, engine, clock = Nvml(ChildProcess(Pace(every=timedelta(seconds=2)))), Engine(RULES), SystemClock()
    begun, took, samples, last = time.monotonic(), 0.0, 0, None
    while samples < _SAMPLES and time.monotonic() - begun < LONGEST:
        sample = probe.sample(clock.now())
        if sample.trouble or (probe.responds() and not sample.readings):
            break
        if sample.readings and sample is not last:
            took = took or time.monotonic() - begun
            engine.ingest(sample)
            samples += 1
        last = sample
        probe.wait(0.5)
    probe.close()
    print(json.dumps(transcript(sample, took, engine), indent=1))
    return 0 if samples else 1


def transcript(sample: Sample, took: float, engine: Engine) -> dict[str, Any]:
    """Readings by device. Those of parts are one list for each name."""
    devices: dict[str, dict[str, Any]] = {}
    for reading in sample.readings:
        values = devices.setdefault(reading.device, {})
        if reading.part:
            values.setdefault(f"{reading.name} of {reading.part.split()[0]}s", []).append(reading.value)
        else:
            values[reading.name] = reading.value
    findings = [f"{bad.device} {bad.rule.name}: {bad.text}" for bad in engine.bad()]
    return {
        "trouble": sample.trouble,
        "seconds to the first sample": round(took, 2),
        "findings": findings,
        "devices": devices,
    }


if __name__ == "__main__":
    sys.exit(main())
