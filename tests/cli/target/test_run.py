"""Which run a command means: a user need not say what can be known."""

from __future__ import annotations

import argparse
import asyncio
import errno
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from healthd.cli.errors import UserError
from healthd.cli.main import main
from healthd.cli.target.run import add_arguments, find_state, name_of, name_of_folder, run_name, run_of
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import ChosenCheckpoint
from healthd.local.gang import RunSpec, job_of
from healthd.local.state.folder import database, forget, make_private, runs_dir


def found(tmp_path: Path, *options: str, runs: Sequence[str] = (), target: str = "") -> str:
    """The place that is found below *tmp_path* where there are *runs* and somebody works in `My_Training`."""
    for name in runs:
        (tmp_path / name).mkdir()
        database(tmp_path / name).touch()
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    state = find_state(parser.parse_args(options), tmp_path, here=Path("/home/ann/My_Training"), target=target)
    return str(state.relative_to(tmp_path))


def test_the_only_run_needs_no_name(tmp_path: Path) -> None:
    assert found(tmp_path, runs=["other"]) == "other"


def test_the_run_of_this_directory_goes_before_others(tmp_path: Path) -> None:
    assert found(tmp_path, runs=["my-training", "other"]) == "my-training"


def test_a_place_goes_before_the_runs_that_are_known(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere" / "run"
    place.mkdir(parents=True)
    database(place).touch()

    assert found(tmp_path, "--state", str(place), runs=["my-training"]) == "elsewhere/run"


def test_a_run_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no run 'llama'; runs on this machine: a, b"):
        found(tmp_path, runs=["a", "b"], target="llama")


def test_one_of_several_must_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are 2 runs: a, b; choose one with --name"):
        found(tmp_path, runs=["a", "b"])


def test_a_name_that_does_not_exist_is_reported_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no run in .*/c: cluster.db is missing; there are a, b; .*--state"):
        found(tmp_path, "--name", "c", runs=["a", "b"])


@pytest.mark.parametrize("command", ["status", "explain", "forget"])
def test_the_run_of_another_user_is_refused(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_: Path) -> bool:  # tests may run as root, whom no folder is closed to
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refused)

    assert main([command, "--state", str(tmp_path)]) == 2
    assert "Permission denied; only the user who started a run can read its state" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--name", "--state"])
def test_an_empty_name_or_place_is_refused(tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As of a variable that is not set: it would mean another run, or the devices of this machine."""
    with pytest.raises(SystemExit, match="2"):
        found(tmp_path, option, "", runs=["a"])

    assert f"argument {option}: it names no" in capsys.readouterr().err


def test_without_any_run_the_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"there is no run in {tmp_path};"):
        found(tmp_path)


def test_runs_are_kept_in_the_users_own_folder() -> None:
    assert runs_dir({"XDG_STATE_HOME": "/state"}) == Path("/state/healthd")
    assert runs_dir({}) == Path.home() / ".local/state/healthd"
    assert runs_dir({"XDG_STATE_HOME": "state"}) == Path.home() / ".local/state/healthd"


@pytest.mark.parametrize(("text", "name"), [("My Run_2", "my-run-2"), ("-x-", "x"), ("a" * 39 + "-bc", "a" * 39)])
def test_a_run_is_called_after_its_directory_as_far_as_a_name_can_be(text: str, name: str) -> None:
    assert name_of(Path("/data") / text) == name


def test_a_directory_without_letters_gives_no_name() -> None:
    with pytest.raises(UserError, match="name it with --name"):
        name_of(Path("/data/__"))


@pytest.mark.parametrize("text", ["My Run_2", "-x-", "../x", "a" * 39 + "-bc", "__", "\x1b[31mred"])
def test_a_name_that_would_have_to_be_changed_is_refused(text: str) -> None:
    """`…-lr-1e4` and `…-lr-3e4` must not be one run because both are long."""
    with pytest.raises(UserError, match="is no name of a run"):
        run_name(text)


def begun(runs: Path, name: str, folder: Path) -> None:
    """A run that was started in *folder*."""
    spec = RunSpec(
        name=name, command=["true"], nproc=1, checkpoint=folder / "out", state=runs / name, working_dir=folder
    )
    make_private(spec.state)
    with EmbeddedCluster.open(database(spec.state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster:
        asyncio.run(cluster.create(job_of(spec, ChosenCheckpoint())))


def test_a_directory_gives_its_name_to_its_run(tmp_path: Path) -> None:
    ann = Path("/home/ann/llama")

    assert name_of_folder(ann, tmp_path) == "llama"
    begun(tmp_path, "llama", ann)
    assert name_of_folder(ann, tmp_path) == "llama"


def test_a_directory_of_a_name_that_is_taken_has_a_mark_that_it_keeps(tmp_path: Path) -> None:
    ann, bob = Path("/home/ann/llama"), Path("/home/bob/llama")
    begun(tmp_path, "llama", ann)
    marked = name_of_folder(bob, tmp_path)
    begun(tmp_path, marked, bob)
    forget(tmp_path / "llama")

    assert marked.startswith("llama-")
    assert name_of_folder(bob, tmp_path) == marked
    assert name_of_folder(ann, tmp_path) == "llama"


def test_the_run_of_this_directory_is_found_by_its_mark(tmp_path: Path) -> None:
    here = Path("/home/ann/My_Training")
    begun(tmp_path, "my-training", Path("/home/bob/My_Training"))
    begun(tmp_path, name_of_folder(here, tmp_path), here)

    assert found(tmp_path) == name_of_folder(here, tmp_path) != "my-training"


def test_what_is_asked_about_names_its_run_from_any_directory(tmp_path: Path) -> None:
    for name in ("llama", "llama-7b", "other"):
        (tmp_path / name).mkdir()
        database(tmp_path / name).touch()

    assert run_of("llama", tmp_path) == tmp_path / "llama"
    assert run_of("llama-7b-57360-1", tmp_path) == tmp_path / "llama-7b"
    assert run_of("gpt", tmp_path) is None
