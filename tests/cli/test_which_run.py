"""Which run a command means: nobody should have to say what can be known."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest

from healthd.cli.errors import UserError
from healthd.cli.which_run import add_arguments, find_state, run_name
from healthd.local.state import database, runs_dir


def found(tmp_path: Path, *options: str, runs: Sequence[str] = ()) -> str:
    """The place that is found below *tmp_path* where there are *runs* and somebody works in `My_Training`."""
    for name in runs:
        (tmp_path / name).mkdir()
        database(tmp_path / name).touch()
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    state = find_state(parser.parse_args(options), tmp_path, here=Path("/home/ann/My_Training"))
    return str(state.relative_to(tmp_path))


def test_the_only_run_needs_no_name(tmp_path: Path) -> None:
    assert found(tmp_path, runs=["other"]) == "other"


def test_the_run_of_this_directory_goes_before_others(tmp_path: Path) -> None:
    assert found(tmp_path, runs=["my-training", "other"]) == "my-training"


def test_a_name_is_spelled_as_when_the_run_was_begun(tmp_path: Path) -> None:
    assert found(tmp_path, "--name", "My_Run", runs=["my-run", "other"]) == "my-run"


def test_a_place_goes_before_the_runs_that_are_known(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere" / "run"
    place.mkdir(parents=True)
    database(place).touch()

    assert found(tmp_path, "--state", str(place), runs=["my-training"]) == "elsewhere/run"


def test_one_of_several_must_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are 2 runs: a, b; choose one with --name"):
        found(tmp_path, runs=["a", "b"])


def test_a_name_that_nobody_has_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no run in .*/c: cluster.db is missing; there are a, b"):
        found(tmp_path, "--name", "c", runs=["a", "b"])


def test_without_any_run_the_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"there is no run in {tmp_path};"):
        found(tmp_path)


def test_runs_are_kept_in_the_users_own_folder() -> None:
    assert runs_dir({"XDG_STATE_HOME": "/state"}) == Path("/state/healthd")
    assert runs_dir({}) == Path.home() / ".local/state/healthd"


@pytest.mark.parametrize(("text", "name"), [("My Run_2", "my-run-2"), ("-x-", "x"), ("a" * 39 + "-bc", "a" * 39)])
def test_a_name_is_made_fit_for_a_job(text: str, name: str) -> None:
    assert run_name(text) == name


def test_a_name_without_letters_is_refused() -> None:
    with pytest.raises(UserError, match="choose a name such as my-training"):
        run_name("__")
