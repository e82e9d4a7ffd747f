"""What the page about checkpoints gives people to copy works as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from healthd.core.api.save_stats import Concern
from tests import quick_yaml
from tests.checkpoints.builders import safetensors_bytes
from tests.docs.page import ROOT
from tests.lab.control_plane import ControlPlane

PAGE = (ROOT / "docs" / "checkpoints.md").read_text()
(JOB,) = [textwrap.dedent(text) for text in re.findall(r"```yaml\n(# verify-at-start.yaml\n.*?)```", PAGE, re.DOTALL)]


@pytest.mark.lab
def test_the_job_that_verifies_by_itself_is_taken_as_it_stands(control_plane: ControlPlane) -> None:
    said = control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=JOB)

    assert "created (server dry run)" in said


def at_start(folder: Path) -> tuple[int, dict[str, Any]]:
    """The exit code of its init container for a *folder* of checkpoints, and what the trainer finds."""
    (first,) = quick_yaml.load(JOB)["spec"]["template"]["spec"]["initContainers"]
    answer = folder.parent / "checkpoint.json"
    named = {each["name"] for each in first["env"]}
    assert named == {"RUN", "ANSWER"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "RUN": str(folder), "ANSWER": str(answer), "PATH": path}
    ended = subprocess.run(first["command"], env=environment, capture_output=True, check=False)
    return ended.returncode, json.loads(answer.read_text())


def test_it_hands_the_newest_good_checkpoint_to_the_trainer(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "step_7.safetensors").write_bytes(safetensors_bytes({"weights": 64}))
    (folder / "step_8.safetensors").write_bytes(b"torn")

    code, answer = at_start(folder)

    assert code == 0
    assert answer["path"] == str(folder / "step_7.safetensors")


def test_it_lets_a_first_start_pass(tmp_path: Path) -> None:
    code, answer = at_start(tmp_path / "nothing-yet")

    assert (code, answer["path"]) == (0, None)


def test_every_concern_and_its_event_are_on_the_page() -> None:
    assert [
        each for each in Concern if f"| `{each}` |" not in PAGE or f"`Checkpoint{each.capitalize()}`" not in PAGE
    ] == []
