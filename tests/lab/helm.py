"""The real Helm, as a person uses it: version 4 and version 3, each with a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import quick_yaml
from tests.lab.api import Json
from tests.lab.build import program
from tests.lab.control_plane import ControlPlane
from tests.lab.modules import HELM, Module
from tests.lab.programs import LabError


class Helm:
    """One version of Helm, at a *control_plane* or at none. Raises CannotBuild."""

    def __init__(self, module: Module, home: Path, control_plane: ControlPlane | None = None) -> None:
        self.is_4 = module is HELM
        self._program = program(module)
        self._environment = {**os.environ, "HELM_CACHE_HOME": f"{home}/cache", "HELM_CONFIG_HOME": f"{home}/config"}
        self._environment |= {"HELM_DATA_HOME": f"{home}/data"}
        self._environment["KUBECONFIG"] = str(control_plane.kubeconfig) if control_plane else "/dev/null"

    def run(self, *words: str, values: Mapping[str, Any] | None = None) -> str:
        """What it prints. *values* are the file of `--values`. Raises LabError with what it complained about."""
        given = [] if values is None else ["--values", "-"]
        done = subprocess.run(
            [str(self._program), *words, *given],
            input=json.dumps(values),
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LabError(f"helm {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Have it begin, to be ended in the middle. What it prints is lost."""
        command, nothing = [str(self._program), *words], subprocess.DEVNULL
        return subprocess.Popen(command, env=self._environment, stdin=nothing, stdout=nothing, stderr=nothing)

    def template(self, chart: Path, values: Mapping[str, Any], *words: str) -> list[Json]:
        """The objects of a chart, and the hooks. Raises LabError."""
        text = self.run("template", "healthd", str(chart), *words, values=values)
        return [each for each in quick_yaml.load_all(text) if each]
