"""The trainer's logs are read line by line, attempt by attempt."""

from __future__ import annotations

from pathlib import Path

from healthd.local.demo.script import DemoFolders
from healthd.local.demo.watch import TrainerLog


def write(place: DemoFolders, attempt: int, text: str) -> None:
    path = place.log_of_rank_0(attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def test_no_log_is_no_line(tmp_path: Path) -> None:
    assert list(TrainerLog(DemoFolders(tmp_path).log_of_rank_0).read()) == []


def test_a_line_is_reported_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    place = DemoFolders(tmp_path)
    log = TrainerLog(place.log_of_rank_0)

    write(place, 0, "step 1\nste")
    assert list(log.read()) == [(0, "step 1")]
    write(place, 0, "p 2\n")
    assert list(log.read()) == [(0, "step 2")]
    assert list(log.read()) == []


def test_the_next_attempt_follows_the_last_lines_of_the_one_before(tmp_path: Path) -> None:
    place = DemoFolders(tmp_path)
    log = TrainerLog(place.log_of_rank_0)
    write(place, 0, "step 1\n")
    list(log.read())
    write(place, 0, "step 2\n")
    write(place, 1, "resumed\n")

    assert list(log.read()) == [(0, "step 2"), (1, "resumed")]
