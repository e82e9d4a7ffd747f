"""The page about Kubernetes says nothing that is not so, as far as that can be seen without a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from healthd.checkpoints.latest import latest
from healthd.cli.main import COMMANDS
from healthd.core import api
from healthd.core.recovery.foreign_signs import known_rows
from tests.docs.page import PAGE, TEXT, anchors, commands, files

SETTINGS = {
    value for name, value in vars(api).items() if name.startswith(("ANNOTATION_", "FINALIZER_", "LABEL_", "TAINT_"))
}


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    lost = [link for link in links if link.startswith("#") and link[1:] not in anchors()]
    lost += [link for link in links if not link.startswith("#") and not (PAGE.parent / link.partition("#")[0]).exists()]

    assert len(links) > 10
    assert lost == []


def test_every_annotation_label_and_taint_that_it_names_exists() -> None:
    named = set(re.findall(r"healthd\.dev/[a-z][a-z-]*[a-z]", TEXT))

    assert named <= SETTINGS


def test_every_command_of_healthd_that_it_names_exists() -> None:
    typed = {line.split()[1] for line in commands() if line.startswith("healthd ")}

    assert {"doctor", "explain", "repair"} <= typed <= set(COMMANDS)


def test_a_row_that_it_switches_off_is_in_the_table() -> None:
    named = re.findall(r"foreign\.off: \[(\S+)\]", TEXT)

    assert named
    assert [name for name in named if name not in known_rows()] == []


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    """The training program of the page, without its pauses."""
    program = next(yaml.safe_load_all(files()["trainer.yaml"]))["data"]["train.py"]
    path = tmp_path / "train.py"
    path.write_text(program.replace("time.sleep(1)", "pass"))
    return path


def run(trainer: Path, out: Path, steps: int, **environment: str) -> str:
    """What it prints."""
    command = [sys.executable, str(trainer), str(out), str(steps)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True).stdout


def test_what_its_training_program_saves_is_verified(trainer: Path, tmp_path: Path) -> None:
    run(trainer, tmp_path / "out", 12)

    found = latest(tmp_path / "out").found

    assert found is not None
    assert (found.step, found.format) == (10, "marked")


def test_its_training_program_goes_on_from_where_it_is_told(trainer: Path, tmp_path: Path) -> None:
    whole = run(trainer, tmp_path / "whole", 12).splitlines()[-1]
    run(trainer, tmp_path / "out", 7)
    resumed = run(trainer, tmp_path / "out", 12, HEALTHD_RESUME_FROM=str(tmp_path / "out/step-5"), HEALTHD_ATTEMPT="1")

    assert resumed.splitlines() == ["rank 0, attempt 1: from step 5", whole]
