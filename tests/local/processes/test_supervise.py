"""A rank under its shim: however it ends, nothing of it is left when its end is reported."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from healthd.local.processes.pods import RankExit
from healthd.local.processes.supervise import Rank, RankCommand
from tests.local.helpers import PATIENCE, Witness, heard_pids, python, shell, stopped, stubborn, witness_at

NOW = timedelta(0)
LONG = timedelta(seconds=60)


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with witness_at(tmp_path / "witness") as witness:
        yield witness


@asynccontextmanager
async def started(argv: list[str], *, cwd: str = "/", linger: timedelta = LONG) -> AsyncIterator[Rank]:
    """A rank of *argv* that is gone at the end, whatever the test did."""
    rank = Rank(f"uid-{os.getpid()}-{id(argv)}", lambda: None)
    output = os.open(os.devnull, os.O_WRONLY)
    rank.start(RankCommand(argv=argv, env=dict(os.environ), cwd=cwd, output=output), linger=linger)
    os.close(output)
    try:
        yield rank
    finally:
        rank.stop(NOW)
        await rank.wait()


async def ending_of(rank: Rank) -> RankExit:
    async with asyncio.timeout(PATIENCE):
        await rank.wait()
    assert rank.ending is not None
    return rank.ending


@pytest.mark.parametrize(
    ("script", "code", "number", "reason"),
    [
        ("exit 0", 0, 0, "Completed"),
        ("exit 3", 3, 0, "Error"),
        ("exit 137", 137, 0, "Error"),
        ("kill -9 $$", 137, 9, "Error"),
        ("kill -11 $$", 139, 11, "Error"),
    ],
)
async def test_an_ending_has_the_exit_code_and_the_signal(script: str, code: int, number: int, reason: str) -> None:
    async with started(shell(script)) as rank:
        ending = await ending_of(rank)

    assert (ending.exit_code, ending.signal, ending.reason) == (code, number, reason)


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("/no/such/program", 127, "/no/such/program: No such file or directory"),
        ("no-such-program-in-path", 127, "no-such-program-in-path: No such file or directory"),
        ("/", 126, "/: Permission denied"),
        ("nul\0byte", 127, "embedded null byte"),
    ],
)
async def test_a_command_that_cannot_run_says_why(command: str, code: int, says: str) -> None:
    async with started([command]) as rank:
        ending = await ending_of(rank)

    assert (ending.exit_code, ending.reason, ending.message) == (code, "StartError", f"cannot be started: {says}")
    assert rank.pid == 0


async def test_a_file_that_is_no_program_is_no_missing_one(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('hello')\n")
    async with started([str(script)]) as rank:
        denied = await ending_of(rank)
    script.chmod(0o755)
    async with started([str(script)]) as rank:
        no_interpreter = await ending_of(rank)

    assert (denied.exit_code, denied.message) == (126, f"cannot be started: {script}: Permission denied")
    assert (no_interpreter.exit_code, no_interpreter.message) == (
        126,
        f"cannot be started: {script}: Exec format error",
    )


async def test_a_missing_working_directory_is_named() -> None:
    async with started(shell("true"), cwd="/no/such/folder") as rank:
        ending = await ending_of(rank)

    assert ending.message == "cannot be started: /no/such/folder: No such file or directory"


@pytest.mark.parametrize("last", ["marked", "unmarked"])
async def test_nothing_outlives_a_stop(witness: Witness, last: str) -> None:
    async with started(stubborn(witness, last)) as rank:
        await heard_pids(witness)
        rank.stop(timedelta(milliseconds=50))
        ending = await ending_of(rank)

        assert witness.is_alone()
        assert ending.signal == signal.SIGKILL
        assert ending.message == "killed by signal 9 after healthd asked it to stop; no process of it is left"


async def test_sigterm_reaches_a_grandchild_in_a_session_of_its_own(witness: Witness) -> None:
    script = """
setsid sh -c '
    exec 3>"$1"; trap "echo got-it >&3; exit" TERM; echo ready >&3
    while :; do sleep 60 & wait; done
' sh "$1" &
wait
"""
    async with started(shell(script, witness.path)) as rank:
        await witness.hear()
        rank.stop(LONG)

        assert await witness.hear() == "got-it"


async def test_sigterm_comes_once(witness: Witness) -> None:
    """Many programs take a second one as "drop everything"."""
    script = """
import os, signal, sys
witness = os.open(sys.argv[1], os.O_WRONLY)
signal.signal(signal.SIGTERM, lambda *_: os.write(witness, b"term\\n"))
os.write(witness, b"ready\\n")
while True:
    signal.pause()
"""
    async with started(python(script, witness.path)) as rank:
        await witness.hear()
        rank.stop(LONG)
        await witness.hear()
        rank.stop(timedelta(milliseconds=50))
        await ending_of(rank)

        assert witness.is_alone()
        assert witness.unheard == ""


async def test_who_was_started_during_the_stop_is_asked_to_stop_too(witness: Witness) -> None:
    script = 'exec 3>"$1"; trap "sleep 1000 & exit 5" TERM; echo ready >&3; while :; do :; done'
    async with started(shell(script, witness.path)) as rank:
        await witness.hear()
        rank.stop(LONG)
        ending = await ending_of(rank)

        assert (ending.exit_code, ending.signal) == (5, 0)
        assert witness.is_alone()


async def test_a_second_stop_shortens_the_first(witness: Witness) -> None:
    async with started(stubborn(witness)) as rank:
        await heard_pids(witness)
        rank.stop(LONG)
        rank.stop(NOW)

        assert (await ending_of(rank)).signal == signal.SIGKILL


async def test_a_rank_that_fails_takes_what_it_started_along(witness: Witness) -> None:
    argv = ["env", "EXIT_CODE=3", *stubborn(witness, "marked", "leave")]
    async with started(argv) as rank:
        ending = await ending_of(rank)

        assert ending.exit_code == 3
        assert witness.is_alone()


async def test_a_rank_that_succeeds_leaves_its_helpers_their_time(witness: Witness) -> None:
    script = 'exec 3>"$1"; (trap "" TERM; read go <"$2"; echo uploaded >&3) & exit 0'
    gate = witness.path.with_name("gate")
    os.mkfifo(gate)
    async with started(shell(script, witness.path, gate)) as rank:
        await asyncio.to_thread(gate.write_text, "go\n")
        ending = await ending_of(rank)

        assert ending.exit_code == 0
        assert await witness.hear() == "uploaded"


async def test_helpers_that_never_end_are_killed_when_their_time_is_over(witness: Witness) -> None:
    async with started(stubborn(witness, "marked", "leave"), linger=timedelta(milliseconds=50)) as rank:
        ending = await ending_of(rank)

        assert ending.exit_code == 0
        assert witness.is_alone()


async def test_a_killed_shim_is_noticed_and_its_processes_found(witness: Witness) -> None:
    async with started(stubborn(witness)) as rank:
        await heard_pids(witness)
        os.kill(rank.shim_pid, signal.SIGKILL)
        ending = await ending_of(rank)

        assert witness.is_alone()
        assert (ending.reason, ending.signal) == ("Lost", signal.SIGKILL)
        assert ending.message.startswith("lost its supervisor, which was killed; ")


async def test_a_rank_dies_with_its_shim_even_if_it_threw_its_mark_away(witness: Witness) -> None:
    async with started(shell('exec 3>"$1"; echo ready >&3; exec env -i sleep 1000', witness.path)) as rank:
        await witness.hear()
        os.kill(rank.shim_pid, signal.SIGKILL)

        await witness.silence()


async def test_a_rank_that_clones_itself_without_end_is_still_ended(witness: Witness) -> None:
    """Each generation forks the next and dies: what kills the processes that it saw is always one too late."""
    script = """
import os, sys
witness = os.open(sys.argv[1], os.O_WRONLY)
os.write(witness, b"ready\\n")
while True:
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
"""
    async with started(shell('"$@" & wait; sleep 1000', *python(script, witness.path))) as rank:
        await witness.hear()
        rank.stop(NOW)
        await ending_of(rank)

        assert witness.is_alone()


CLASSIC_SIGNALS = (1 << 31) - 1
"""Not those that a C library keeps for itself; what started the tests may have left one ignored."""


async def test_the_signals_that_the_shim_ignores_work_in_the_rank(witness: Witness) -> None:
    script = 'grep -E "^Sig(Ign|Blk)" /proc/self/status >"$1"; kill -INT $$'
    async with started(shell(script, witness.path)) as rank:
        ending = await ending_of(rank)

        masks = [int((await witness.hear()).split()[1], 16) for _ in range(2)]
        assert [mask & CLASSIC_SIGNALS for mask in masks] == [0, 0]
        assert ending.signal == signal.SIGINT


SUSPENDED = """
import os, select, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
rank = os.getpid()
if os.fork() == 0:
    os.kill(rank, signal.SIGSTOP)
    open(sys.argv[1], "w").write("stopped\\n")
    os._exit(0)
while True:
    select.select([], [], [], 0.1)
"""


async def test_a_rank_that_was_suspended_by_a_signal_hears_that_it_shall_stop(witness: Witness) -> None:
    async with started(python(SUSPENDED, witness.path)) as rank:
        await witness.hear()
        rank.stop(LONG)

        assert (await ending_of(rank)).signal == 0


async def test_a_shim_that_was_suspended_by_a_signal_obeys_a_stop(witness: Witness) -> None:
    async with started(stubborn(witness)) as rank:
        await heard_pids(witness)
        with stopped(rank.shim_pid):
            rank.stop(NOW)
            await ending_of(rank)

        assert witness.is_alone()
