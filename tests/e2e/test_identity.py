"""Which run is meant: folder, command and place of checkpoints say it, and a change is never guessed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.checkpoints.builders import safetensors_bytes
from tests.e2e.driver import ROOT, RunFolder

pytestmark = pytest.mark.slow

TRAINS = """
import json, os, struct, sys
last, folder = int(sys.argv[1]), sys.argv[2]
resumed = int(os.environ.get("HEALTHD_RESUME_STEP", "0"))
if os.environ["RANK"] == "0":
    os.makedirs(folder, exist_ok=True)
    with open("trained", "a") as file:
        file.write(f"{resumed}-{last} ")
    header = json.dumps({"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    for step in range(resumed + 1, last + 1):
        with open(folder + "/.new", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + struct.pack("<d", step))
        os.rename(folder + "/.new", f"{folder}/step-{step}.safetensors")
"""
"""Trains to its last step, one checkpoint a step, and writes down from where."""


class Ended(NamedTuple):
    """What one command said."""

    code: int
    said: str
    events: list[dict[str, str]]

    def event(self, name: str) -> dict[str, str]:
        """The only one of this name."""
        [found] = [event for event in self.events if event["event"] == name]
        return found


class Projects:
    """Folders in which a person starts runs by hand, and one home for all of them."""

    def __init__(self, run_folder: RunFolder) -> None:
        self._stage = run_folder
        self._environ = {
            **run_folder._driver.environ,
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(run_folder.folder / "home"),
        }
        self.runs = run_folder.folder / "home" / "healthd"

    def folder(self, path: str) -> Path:
        """A project's."""
        folder = self._stage.folder / path
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def healthd(self, *arguments: str, here: Path | None = None) -> Ended:
        """One command, to its end."""
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "healthd.cli.main", *arguments],
            cwd=here or self._stage.folder,
            env=self._environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        lines = printed.decode().splitlines()
        events = [json.loads(line) for line in lines if line.startswith('{"timestamp"')]
        return Ended(process.returncode or 0, printed.decode(), events)

    async def train(self, here: Path, last: int, *options: str, out: str = "out", command: Sequence[str] = ()) -> Ended:
        """`healthd run` in *here*, to step *last*."""
        self._stage.kernel_log.rewind()
        usual = ["--nproc", "1", "--checkpoint", out, "--config", str(self._stage.config), "--quiet", *options]
        trains = [sys.executable, "-I", "-S", "-c", TRAINS, str(last), out]
        return await self.healthd("run", *usual, "--", *(command or trains), here=here)


@pytest.fixture
def projects(run_folder: RunFolder) -> Projects:
    return Projects(run_folder)


def trained(here: Path) -> str:
    """The stretches that were trained in *here*."""
    path = here / "trained"
    return path.read_text() if path.exists() else ""


async def test_projects_in_folders_of_one_name_are_two_runs(projects: Projects) -> None:
    ann, bob = projects.folder("ann/llama"), projects.folder("bob/llama")
    for here in (ann, bob):
        ended = await projects.train(here, 3)
        assert ended.code == 0, ended.said
    again = await projects.train(bob, 3)

    assert (trained(ann), trained(bob)) == ("0-3 ", "0-3 ")
    assert "finished in an earlier run, at step 3" in again.event("run.done")["note"]
    assert sorted(run.name[:5] for run in projects.runs.iterdir()) == ["llama", "llama"]


async def test_a_run_keeps_its_name_when_the_other_of_that_name_is_forgotten(projects: Projects) -> None:
    ann, bob = projects.folder("ann/llama"), projects.folder("bob/llama")
    await projects.train(ann, 2)
    await projects.train(bob, 2)
    forgotten = await projects.healthd("forget", "llama")
    again = await projects.train(bob, 2)

    assert f"its checkpoints in {ann / 'out'} are left" in forgotten.said
    assert "finished in an earlier run" in again.said
    assert trained(bob) == "0-2 "


async def test_another_command_in_the_same_folder_is_said_and_not_run(projects: Projects) -> None:
    here = projects.folder("llama")
    await projects.train(here, 2)
    other = await projects.train(here, 5)

    assert other.code == 2
    assert "was begun as something else: command " in other.said
    assert all(way in other.said for way in ("--accept-changes", "--fresh", "--name", "healthd runs"))
    assert trained(here) == "0-2 "


async def test_another_command_goes_on_where_its_owner_accepts_the_change(projects: Projects) -> None:
    here = projects.folder("llama")
    await projects.train(here, 2)
    ended = await projects.train(here, 5, "--accept-changes")

    assert ended.code == 0, ended.said
    assert trained(here) == "0-2 2-5 "
    assert "command " in ended.event("run.starts")["changed"]
    assert ended.event("run.starts")["saved_by"] == "this run"


@pytest.mark.parametrize(
    ("options", "out", "changed"),
    [(("--nproc", "2"), "out", "--nproc 1, now 2"), ((), "elsewhere", "--checkpoint ")],
)
async def test_other_options_of_a_run_that_has_finished_are_said(
    projects: Projects, options: tuple[str, ...], out: str, changed: str
) -> None:
    here = projects.folder("llama")
    command = ["true"]
    await projects.train(here, 2, command=command)
    other = await projects.train(here, 2, *options, out=out, command=command)

    assert other.code == 2
    assert changed in other.said


async def test_a_name_that_was_given_belongs_to_its_folder(projects: Projects) -> None:
    ann, bob = projects.folder("ann"), projects.folder("bob")
    await projects.train(ann, 2, "--name", "mine")
    other = await projects.train(bob, 2, "--name", "mine")

    assert other.code == 2
    assert f"started in {ann}, now {bob}" in other.said
    assert trained(bob) == ""


async def test_fresh_begins_from_nothing_and_moves_aside_what_was_there(projects: Projects) -> None:
    here = projects.folder("llama")
    await projects.train(here, 4)
    ended = await projects.train(here, 2, "--fresh")
    again = await projects.train(here, 2)

    assert ended.code == 0, ended.said
    assert trained(here) == "0-4 0-2 "
    assert ended.event("run.starts")["at"].startswith("step 0")
    assert ended.event("checkpoints.moved_aside")["to"] == str(here / "out.before-1")
    assert sorted(path.name for path in (here / "out").iterdir()) == ["step-1.safetensors", "step-2.safetensors"]
    assert len(list((here / "out.before-1").iterdir())) == 4
    assert "finished in an earlier run, at step 2" in again.said


async def test_fresh_moves_nothing_but_checkpoints(projects: Projects) -> None:
    here = projects.folder("llama")
    (here / "out").mkdir()
    (here / "out" / "train.py").write_text("")
    inside = await projects.train(here, 2, "--fresh", command=["sh", "-c", "true", "out/train.py"])
    around = await projects.train(here, 2, "--fresh", out=".", command=["true"])

    assert (inside.code, around.code) == (2, 2)
    assert "holds out/train.py, which the command names" in inside.said
    assert "is where the run is started" in around.said
    assert (here / "out" / "train.py").exists()


async def test_a_run_that_has_finished_says_which_of_its_checkpoints_is_missing(projects: Projects) -> None:
    here = projects.folder("llama")
    await projects.train(here, 3)
    (here / "out" / "step-3.safetensors").write_bytes(b"torn")
    torn = await projects.train(here, 3)
    (here / "out").rename(here / "elsewhere")
    gone = await projects.train(here, 3)
    fresh = await projects.train(here, 3, "--fresh")

    assert (torn.code, gone.code, fresh.code) == (2, 2, 0)
    assert "step-3.safetensors will not load any more: " in torn.said
    assert "To go on from step 2, the newest that loads, choose another --name" in torn.said
    assert f"at step 3, but that is not in {here / 'out'} any more" in gone.said
    assert "add --fresh" in gone.said
    assert trained(here) == "0-3 0-3 "


async def test_a_run_that_never_saved_is_done_when_it_has_finished(projects: Projects) -> None:
    here = projects.folder("llama")
    await projects.train(here, 3, command=["true"])
    again = await projects.train(here, 3, command=["true"])

    assert again.code == 0
    assert "finished in an earlier run" in again.said


async def test_only_restarts_by_healthd_are_listed_as_restarts(projects: Projects) -> None:
    here = projects.folder("llama")
    await projects.train(here, 3)
    await projects.train(here, 3, "--fresh")
    await projects.train(here, 5, "--accept-changes")
    [run] = [json.loads(line) for line in (await projects.healthd("runs", "--json")).said.splitlines()]

    assert (run["step"], run["restarts"]) == (5, 0)


async def test_the_checkpoints_of_another_run_are_named_as_such(projects: Projects) -> None:
    here = projects.folder("llama")
    await projects.train(here, 3, "--name", "first")
    ended = await projects.train(here, 5, "--name", "second")
    starts = ended.event("run.starts")

    assert (starts["at"], starts["level"]) == ("step 3", "warning")
    assert starts["saved_by"].startswith("the run 'first', finished at step 3 (")
    assert "--fresh" in starts["note"]


async def test_checkpoints_from_before_any_run_are_named_as_such(projects: Projects) -> None:
    here = projects.folder("llama")
    (here / "out").mkdir()
    (here / "out" / "step-1.safetensors").write_bytes(safetensors_bytes({"w": 8}))
    ended = await projects.train(here, 2)

    assert ended.event("run.starts")["saved_by"] == "no run that this machine knows of"


async def test_all_runs_are_listed_and_one_that_goes_on_is_not_forgotten(
    projects: Projects, run_folder: RunFolder
) -> None:
    await projects.train(projects.folder("ann/llama"), 3)
    async with run_folder.life("--state", str(projects.runs / "gang")) as life:
        await run_folder.all_wait(life, 0)
        listed = [json.loads(line) for line in (await projects.healthd("runs", "--json")).said.splitlines()]
        table = await projects.healthd("runs")
        refused = await projects.healthd("forget", "gang")
        run_folder.open_gate()
        await life.ended()

    reported = {run["name"]: (run["standing"], run["step"], run["folder"]) for run in listed}

    assert reported["llama"] == ("finished", 3, str(run_folder.folder / "ann/llama"))
    assert reported["gang"][0] == "running"
    assert table.said.splitlines()[0].split()[:3] == ["NAME", "STATUS", "STEP"]
    assert refused.code == 2
    assert "is under way" in refused.said
    assert (projects.runs / "gang").exists()


async def test_a_run_that_was_cut_off_may_begin_again_from_nothing(run_folder: RunFolder) -> None:
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
    run_folder.open_gate()
    async with run_folder.life("--fresh") as life:
        assert await life.ended() == 0, life.log

    assert run_folder.starts() == [(0, 0), (1, 0)]
    assert {path.name for path in run_folder.folder.glob("checkpoints.before-1/*")} >= {"step-000004.safetensors"}
    run_folder.check_writers()
