"""A `libcuda.so.1` that does as a script says, compiled from `cuda.c`: it answers right, wrong, slowly or never."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("cuda.c")


def build(folder: Path) -> Path:
    """*folder* with the library in it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) here to build the stand-in for libcuda.so.1")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libcuda.so.1"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-w", "-o", library, str(SOURCE)], check=True)
    return folder


class StandIn:
    """What a process sees that runs with `environ`: the library of the folder *library*, as *script* says."""

    def __init__(self, library: Path, script: Path) -> None:
        self._script = script
        self.environ = {"LD_LIBRARY_PATH": str(library), "STANDIN_CUDA": str(script)}
        self.play()

    def play(self, *statements: str) -> None:
        """What processes that start from now on are to meet."""
        self._script.write_text("".join(f"{statement}\n" for statement in statements))
