"""What `healthd run` refuses before anything starts: one clear line, an exit code, and nothing left behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.driver import RunFolder

pytestmark = pytest.mark.slow


async def test_a_command_that_is_not_there_is_never_started(run_folder: RunFolder) -> None:
    async with run_folder.life(command=["no-such-command"]) as life:
        assert await life.ended() == 127

    assert "there is no command no-such-command" in life.other
    assert not run_folder.state.exists()


async def test_a_file_that_cannot_be_run_is_never_started(run_folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')")
    async with run_folder.life(command=["./train.py"]) as life:
        assert await life.ended() == 126

    assert "./train.py cannot be run: it is not executable" in life.other


async def test_an_interpreter_that_is_not_there_ends_with_the_shells_code(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("#!/no/such/python\n")
    script.chmod(0o755)
    async with run_folder.life(command=["./train.py"]) as life:
        assert await life.ended() == 127, life.log


@pytest.mark.parametrize("inside", [".", "state"])
async def test_a_state_among_the_checkpoints_is_refused(run_folder: RunFolder, inside: str) -> None:
    """--fresh would move it aside."""
    assert "name a folder for checkpoints alone" in await refused(
        run_folder, "--state", str(run_folder.checkpoints / inside)
    )
    assert not run_folder.checkpoints.exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--min-nodes", "3"), "--min-nodes 3 is more than --nproc 2"),
        (("--checkpoint", ""), "it names no folder"),
        (("--state", ""), "argument --state: it names no folder"),
        (("--checkpoint", "state/logs/out"), "where healthd keeps logs, and which `healthd forget` removes"),
        (
            ("--checkpoint", "out\n"),
            "/out\\u000a has characters that do not print, so no rank could be given a checkpoint",
        ),
        (("--checkpoint", "out\x1b[2J/run1"), "/out\\u001b[2J/run1 has characters that do not print"),
        (("--checkpoint", "healthd.yaml"), "healthd.yaml is no folder: name the folder that holds the checkpoints"),
    ],
)
async def test_options_that_cannot_be_meant_are_refused(
    run_folder: RunFolder, options: tuple[str, ...], why: str
) -> None:
    assert why in await refused(run_folder, *options)
    assert not run_folder.state.exists()


@pytest.mark.parametrize("option", ["--checkpoint", "--state"])
async def test_a_link_that_leads_back_to_itself_is_named(run_folder: RunFolder, option: str) -> None:
    (run_folder.folder / "loop").symlink_to("loop")
    said = await refused(run_folder, option, "loop")

    assert said == f"healthd: {option} loop cannot be used: a link in it leads back to itself; name the folder itself\n"


async def test_two_runs_of_one_name_are_kept_apart(run_folder: RunFolder) -> None:
    async with run_folder.life() as first:
        await run_folder.all_wait(first, 0)
        second = await refused(run_folder)
        first.signal(signal.SIGINT)
        await first.ended()

    assert "is under way" in second
    run_folder.check_writers()


async def test_a_state_around_the_checkpoints_is_a_layout_like_any_other(run_folder: RunFolder) -> None:
    """It waited for a lock that it held itself, on the folder around the checkpoints."""
    run_folder.state = run_folder.folder
    async with run_folder.life() as first:
        await run_folder.all_wait(first, 0)
        beside = await refused(run_folder, "--checkpoint", "elsewhere")
        same = await refused(run_folder, "--state", "other")
        around = await refused(run_folder, "--state", "/nonexistent/state", "--checkpoint", str(run_folder.folder))
        among = await refused(run_folder, "--state", str(run_folder.checkpoints), "--checkpoint", "elsewhere")
        status = await run_folder.asks("status", "--state", str(run_folder.state))
        first.signal(signal.SIGINT)
        await first.ended()

    assert "is under way (process" in beside
    assert f"a run saves in {run_folder.checkpoints} already (run 'gang', process" in same
    assert f"a run saves in {run_folder.folder} already, or in a folder within it (process" in around
    assert f"lies in {run_folder.checkpoints}, where a run saves (run 'gang', process" in among
    assert "gang" in status
    run_folder.check_writers()


async def test_the_state_of_one_run_may_be_around_the_checkpoints_of_another(run_folder: RunFolder) -> None:
    async with run_folder.life("--state", "elsewhere") as first:
        await run_folder.all_wait(first, 0)
        async with run_folder.life("--state", ".", "--checkpoint", "more", command=["true"]) as second:
            assert await second.ended() == 0


async def refused(run_folder: RunFolder, *options: str) -> str:
    """What a second `healthd run` says beside the first one, whose pipes it leaves alone."""
    command = [sys.executable, "-m", "healthd.cli.main", "run", *run_folder.arguments(*options), "--", "true"]
    process = await asyncio.create_subprocess_exec(*command, cwd=run_folder.folder, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()

    assert process.returncode == 2
    return said.decode()


async def test_a_run_that_is_done_is_not_run_again(run_folder: RunFolder) -> None:
    for _ in range(2):
        async with run_folder.life(command=["sh", "-c", "echo run >> runs"]) as life:
            assert await life.ended() == 0

    assert "the same command in the same folder finished in an earlier run" in life.log
    assert (run_folder.folder / "runs").read_text() == "run\n" * 2  # two ranks, once


@pytest.mark.parametrize("former", ["true", "exit 0"])
async def test_a_name_belongs_to_its_command(run_folder: RunFolder, former: str) -> None:
    async with run_folder.life(command=["sh", "-c", former]) as life:
        assert await life.ended() == 0
    async with run_folder.life(command=["sh", "-c", "touch ran"]) as life:
        assert await life.ended() == 2

    assert "was begun as something else: command " in life.other
    assert not (run_folder.folder / "ran").exists()


async def test_a_state_that_is_no_folder_is_named(run_folder: RunFolder) -> None:
    run_folder.state.write_text("")
    async with run_folder.life(command=["true"]) as life:
        assert await life.ended() == 2

    assert f"the state in {run_folder.state} cannot be used" in life.other


@pytest.mark.parametrize(
    "options", [("--metrics", "256.0.0.1:1", "--checkpoint", "new/out"), ("--fresh", "--checkpoint", ".")]
)
async def test_a_start_that_is_refused_leaves_nothing_behind(run_folder: RunFolder, options: tuple[str, ...]) -> None:
    before = sorted(path.name for path in run_folder.folder.iterdir())
    await refused(run_folder, *options, "--state", str(run_folder.folder / "home" / "healthd" / "llama"))

    assert sorted(path.name for path in run_folder.folder.iterdir()) == before


async def test_a_start_that_is_refused_leaves_what_was_there(run_folder: RunFolder) -> None:
    (run_folder.state / "logs").mkdir(parents=True)
    (run_folder.state / "logs" / "mine").write_text("mine")
    await refused(run_folder, "--metrics", "256.0.0.1:1")

    assert (run_folder.state / "logs" / "mine").read_text() == "mine"


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own, where that is allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    mounting = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounting.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounting.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize(("options", "why"), [("size=64k", "disk is full"), ("ro", "Read-only file system")])
async def test_a_disk_that_takes_no_state_is_named(
    run_folder: RunFolder, tmp_path: Path, options: str, why: str
) -> None:
    with mounted(tmp_path / "disk", options) as disk:
        async with run_folder.life("--state", str(disk / "state"), command=["true"]) as life:
            assert await life.ended() == 2

    assert why in life.other
    assert "Traceback" not in life.other


async def test_two_runs_never_save_in_one_folder_whatever_they_are_called(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    async with run_folder.life() as first:
        await run_folder.all_wait(first, 0)
        second = await refused(run_folder, "--name", "another", "--state", str(tmp_path / "another state"))
        inside = await refused(
            run_folder,
            "--name",
            "inside",
            "--state",
            str(tmp_path / "third"),
            "--checkpoint",
            str(run_folder.checkpoints / "sub"),
        )
        first.signal(signal.SIGINT)
        await first.ended()

    assert not (tmp_path / "another state").exists()
    assert not (tmp_path / "third").exists()
    assert f"a run saves in {run_folder.checkpoints} already (run " in second
    assert f"a run saves in {run_folder.checkpoints}, which is around it" in inside
    run_folder.check_writers()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sh", "-c", "torchrun --nproc-per-node 2 train.py"], 2),
        (["--allow-launcher", "--", "sh", "-c", "exit 0; torchrun train.py"], 0),
    ],
)
async def test_a_launcher_within_a_run_is_refused_unless_it_is_allowed(
    run_folder: RunFolder, words: list[str], code: int
) -> None:
    options = words[: words.index("--")] if "--" in words else []
    async with run_folder.life(*options, command=words[len(options) + bool(options) :]) as life:
        assert await life.ended() == code

    assert ("torchrun starts ranks, and healthd does so itself" in life.other) is (code == 2)
    assert not (code == 2 and run_folder.state.exists())
