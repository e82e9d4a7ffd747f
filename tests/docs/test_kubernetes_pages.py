"""The pages about Kubernetes are true, as far as a test without a cluster can see."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from healthd.checkpoints.latest import latest
from healthd.cli.main import COMMANDS
from healthd.core import api
from healthd.core.recovery.nodes.foreign_signs import known_rows
from tests import quick_yaml
from tests.docs.page import KUBERNETES_PAGES, ROOT, manifests

TEXTS = [*(page.text for page in KUBERNETES_PAGES), *manifests().values()]
SETTINGS = {
    value for name, value in vars(api).items() if name.startswith(("ANNOTATION_", "FINALIZER_", "LABEL_", "TAINT_"))
}


def test_every_annotation_label_and_taint_that_they_name_exists() -> None:
    named = {name for text in TEXTS for name in re.findall(r"healthd\.dev/[a-z][a-z-]*[a-z]", text)}

    assert named <= SETTINGS


def test_every_command_of_healthd_that_they_name_exists() -> None:
    typed = {line.split()[1] for page in KUBERNETES_PAGES for line in page.commands() if line.startswith("healthd ")}

    assert {"doctor", "explain", "repair"} <= typed <= set(COMMANDS)


def test_a_sign_that_they_switch_off_is_in_the_table() -> None:
    named = [name for text in TEXTS for name in re.findall(r"foreign\.off: \[(\S+)\]", text)]

    assert named
    assert [name for name in named if name not in known_rows()] == []


def test_what_they_quote_of_a_manifest_stands_there() -> None:
    quoted = [part for page in KUBERNETES_PAGES for part in page.parts()]

    assert {name.rpartition("/")[2] for name, _ in quoted} >= {
        "job.yaml",
        "jobset.yaml",
        "statefulset.yaml",
        "pods.yaml",
    }
    assert [name for name, part in quoted if part not in (ROOT / name).read_text()] == []


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    """The training program of the examples, without its pauses."""
    program = next(quick_yaml.load_all(manifests()["trainer.yaml"]))["data"]["train.py"]
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


def test_its_training_program_resumes_from_the_given_step(trainer: Path, tmp_path: Path) -> None:
    whole = run(trainer, tmp_path / "whole", 12).splitlines()[-1]
    run(trainer, tmp_path / "out", 7)
    resumed = run(trainer, tmp_path / "out", 12, HEALTHD_RESUME_FROM=str(tmp_path / "out/step-5"), HEALTHD_ATTEMPT="1")

    assert resumed.splitlines() == ["rank 0, attempt 1: from step 5", whole]
