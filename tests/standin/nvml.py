"""
A `libnvidia-ml.so.1` that does as a script says, compiled from `nvml.c` and found by the real Python binding.

    standin.play("gpus 2", "field 145 1 * 1 1")    # from now on: GPU 1 failed to remap a row
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml.c")


def build(folder: Path, *, without: Iterable[str] = ()) -> Path:
    """*folder* with the library in it; symbols *without* which an old or a new driver comes are not exported."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) here to build the stand-in for libnvidia-ml.so.1")
    folder.mkdir(parents=True, exist_ok=True)
    renamed = [f"-D{symbol}=not_in_this_driver_{number}" for number, symbol in enumerate(without)]
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-w", *renamed, "-o", library, str(SOURCE)], check=True)
    return folder


@cache
def built() -> Path:
    """The folder of a driver that has everything, for as long as this process lasts."""
    folder = tempfile.TemporaryDirectory(prefix="healthd-nvml-")
    atexit.register(folder.cleanup)
    return build(Path(folder.name))


class StandIn:
    """What a process sees that runs with `environ`: the driver of *library*, with GPUs as *script* says."""

    def __init__(self, library: Path, script: Path) -> None:
        self._script = script
        self.environ = {**os.environ, "LD_LIBRARY_PATH": str(library), "STANDIN_NVML": str(script)}
        self.play()

    def play(self, *statements: str) -> None:
        """From now on everything is as *statements* say, and as usual where they say nothing."""
        draft = self._script.with_suffix(".new")
        draft.write_text("".join(f"{statement}\n" for statement in statements))
        draft.rename(self._script)

    @property
    def hangs(self) -> bool:
        """Whether a process hangs in a call, or did."""
        return self._script.with_name(f"{self._script.name}.hangs").exists()
