"""`healthd gangs`, `healthd recoveries` and `healthd top`, of a run on this machine."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from healthd.cli.commands.cluster.top import FleetView, picture, screen_of
from healthd.cli.main import kubectl_plugin, main
from healthd.cli.target.target import open_target
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import read_everything
from healthd.core.report.listing import gangs, recoveries
from healthd.gangs.kinds import ALL
from tests.cli.commands.cluster.test_explain import HELD, a_saving_job, a_state
from tests.fakes import START

NO_CLUSTER = {"kubeconfig": None, "context": "", "namespace": ""}


@pytest.fixture
def held(tmp_path: Path) -> str:
    """The state of a run that waits for a person."""
    return str(a_state(tmp_path / "run", ["train-1"], HELD, job=a_saving_job()))


def test_gangs_are_listed_and_the_exit_code_says_that_one_needs_a_person(
    held: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["gangs", "--state", held])

    title, row = capsys.readouterr().out.splitlines()
    assert code == 1
    assert title.split()[:3] == ["NAMESPACE", "GANG", "STATE"]
    assert row.split()[:3] == ["default", "job/train", "held"]
    assert row.endswith("Held: slot-2 is not quarantined")


def test_programs_get_one_object_a_line(held: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["gangs", "--state", held, "-o", "json"])
    main(["recoveries", "--state", held, "-o", "json"])

    gang, recovery = map(json.loads, capsys.readouterr().out.splitlines())
    assert (gang["state"], gang["recovery"]) == ("held", "train-1")
    assert (recovery["phase"], recovery["gang"]) == ("Held", "job/train")


def test_only_recoveries_in_progress_where_these_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = str(a_state(tmp_path / "run", ["train-1"], job=a_saving_job()))

    assert main(["recoveries", "--state", state, "--active"]) == 0
    assert "no recovery in progress" in capsys.readouterr().out


def test_top_in_a_pipe_prints_one_picture(held: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--state", held]) == 0

    picture = capsys.readouterr().out
    assert "slots  0: 0 spares free" in picture
    assert "gangs  1: 1 held" in picture
    assert "recoveries in progress" in picture


def test_top_for_programs_is_one_object_with_what_the_picture_shows(
    held: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--state", held, "-o", "json"]) == 0

    seen = json.loads(capsys.readouterr().out)
    assert (seen["counts"]["spares_free"], seen["counts"]["gangs"]) == (0, {"held": 1})
    assert [each["phase"] for each in seen["active"]] == ["Held"]
    assert [each["gang"] for each in seen["gangs"]] == ["job/train"]
    assert seen["trouble"] is None


def test_top_has_all_columns_where_these_are_asked_for(held: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["top", "--state", held])
    narrow = capsys.readouterr().out
    main(["top", "--state", held, "-o", "wide"])

    wide, columns = capsys.readouterr().out, [*gangs.COLUMNS, *recoveries.COLUMNS]
    titles = {column.title for column in columns if column.wide} - {each.title for each in columns if not each.wide}
    assert {title for title in titles if title in wide} == titles
    assert {title for title in titles if title in narrow} == set()


@pytest.mark.parametrize("command", ["gangs", "recoveries", "nodes", "top", "spares plan"])
def test_as_a_plugin_of_kubectl_it_never_looks_at_a_run(
    held: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    words = ["kubectl-healthd", *command.split(), "--kubeconfig", str(tmp_path / "none")]
    monkeypatch.setattr("sys.argv", words)

    assert kubectl_plugin() == 2
    assert "none" in capsys.readouterr().err


def test_as_a_plugin_it_has_only_commands_that_ask_a_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl-healthd", "agent"])

    assert kubectl_plugin() == 2
    assert "there is no command 'agent'" in capsys.readouterr().err


def test_the_picture_fits_the_terminal_and_says_what_it_leaves_out(held: str) -> None:
    lines = asyncio.run(drawn(held, width=40, height=6))

    assert len(lines) == 6
    assert max(map(len, lines)) <= 40
    assert lines[-1].startswith("and 6 more lines")


def test_a_picture_that_is_out_of_date_says_so(held: str) -> None:
    assert "out of date: no update of pods for 200 s" in asyncio.run(drawn(held, trouble="no update of pods for 200 s"))


async def drawn(
    state: str, *, width: int | None = None, height: int | None = None, trouble: str | None = None
) -> list[str]:
    """The picture of a run."""
    async with open_target(argparse.Namespace(state=Path(state), name="", **NO_CLUSTER)) as found:
        fleet = ClusterState(ALL)
        await read_everything(found.cluster, fleet, ALL)
        return picture(FleetView(fleet, list(fleet.roots.values()), trouble), found, START, width, height)


def shown_on(terminal: str) -> str:
    """What two pictures are on a terminal of that type."""
    page = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": terminal})
    with screen_of(page) as show:
        show(["gangs  1: 1 running"])
        show(["gangs  1: 1 held"])
    assert isinstance(page.file, io.StringIO)
    return page.file.getvalue()


def test_a_terminal_that_cannot_move_its_cursor_shows_each_picture_below_the_last() -> None:
    assert shown_on("dumb") == "gangs  1: 1 running\n\ngangs  1: 1 held\n\n"


def test_on_other_terminals_a_picture_takes_the_place_of_the_last() -> None:
    assert shown_on("xterm").startswith("\x1b[?1049h")
