"""The child that asks NVML for ever, as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from healthd.probes.nvml import child
from healthd.probes.nvml.process import asking
from tests.probes.nvml.simulated_node import ENOUGH, QUICK
from tests.standin.nvml import StandIn

PROGRAM = Path(child.__file__).with_name("watch.py")


def test_the_child_ends_when_no_one_listens(standin: StandIn) -> None:
    process = asking(standin.environ)(QUICK)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()

    assert process.wait(ENOUGH) == 0


def test_the_child_stays_small() -> None:
    heavy = {"asyncio", "msgspec", "structlog", "aiohttp", "healthd.core", "logging"}
    code = f"import runpy, sys; runpy.run_path({str(PROGRAM)!r}); print(*sorted({heavy!r} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert said.stdout.split() == []
