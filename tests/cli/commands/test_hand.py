"""`healthd hand`: what its pod says and leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.cli.main import main

BOOT = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine in BOOT, without GPUs and without programs."""
    boot = tmp_path / "machine/proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(f"{BOOT}\n")
    (tmp_path / "machine/sys/bus/pci/devices").mkdir(parents=True)
    return tmp_path / "machine"


@pytest.mark.parametrize("what", ["gpu-reset", "reboot"])
def test_in_another_boot_it_ends_well_and_says_so(
    root: Path, tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["hand", what, "--boot-id=another", f"--root={root}", f"--result={tmp_path / 'end'}"])

    said = f"nothing was done: it booted since ({BOOT})"
    assert (code, capsys.readouterr().out, (tmp_path / "end").read_text()) == (0, f"{said}\n", said)


def test_a_refusal_has_a_code_of_its_own(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hand", "gpu-reset", f"--boot-id={BOOT}", f"--root={root}"]) == 3
    assert "the driver nvidia has no GPU on this machine" in capsys.readouterr().out


def test_without_a_boot_it_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hand", "reboot"]) == 2
    assert "--boot-id" in capsys.readouterr().err


def test_a_result_that_cannot_be_left_does_not_change_how_it_ended(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hand", "reboot", "--boot-id=another", f"--root={root}", "--result=/nowhere/at/all"]) == 0
    assert "--result /nowhere/at/all" in capsys.readouterr().err
