"""The folder of a run: for its owner alone, and no place where others may have put something."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from healthd.local.processes.output import open_log
from healthd.local.state.folder import held

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder to another user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [None, 0o755, 0o777])
def test_a_new_or_empty_folder_is_closed_to_others(tmp_path: Path, before: int | None) -> None:
    state = tmp_path / "runs" / "llama"
    if before is not None:
        state.mkdir(parents=True)
        state.chmod(before)

    with held(state):
        assert mode(state) == 0o700
        assert mode(state / "lock") == 0o600


def test_a_folder_of_an_earlier_run_that_others_could_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "state" / "logs").mkdir(parents=True)
    (tmp_path / "state").chmod(0o755)

    with held(tmp_path / "state"):
        assert mode(tmp_path / "state") == 0o700


def test_a_folder_that_others_could_fill_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state" / "logs").mkdir(parents=True)
    (tmp_path / "state").chmod(0o777)

    with pytest.raises(PermissionError, match="others could fill it"), held(tmp_path / "state"):
        pass


@pytest.mark.parametrize("to", ["folder", "missing"])
def test_a_link_is_refused_and_not_followed(tmp_path: Path, to: str) -> None:
    (tmp_path / "folder").mkdir(mode=0o755)
    (tmp_path / "state").symlink_to(tmp_path / to)

    with pytest.raises(PermissionError, match="it is a link"), held(tmp_path / "state"):
        pass
    assert mode(tmp_path / "folder") == 0o755
    assert not (tmp_path / "missing").exists()


@ROOT_ONLY
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 64321, -1)

    with pytest.raises(PermissionError, match="it belongs to user 64321"), held(tmp_path / "state"):
        pass


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "lock").symlink_to(tmp_path / "victim")

    with pytest.raises(OSError, match="symbolic links"), held(tmp_path / "state"):
        pass
    assert not (tmp_path / "victim").exists()


def test_a_log_is_for_its_owner_alone_and_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "rank-0.log"
    os.close(open_log(path))
    (tmp_path / "logs" / "rank-1.log").symlink_to(tmp_path / "victim")

    assert mode(path) == 0o600
    with pytest.raises(OSError, match="symbolic links"):
        open_log(tmp_path / "logs" / "rank-1.log")
    assert not (tmp_path / "victim").exists()
