"""`healthd status --name RUN`, and what `healthd run` says of GPUs that it cannot find."""

from __future__ import annotations

import asyncio
import fcntl
import json
import re
import uuid
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from healthd.cli.commands.run import log_no_gpu
from healthd.cli.main import main
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import ANNOTATION_SILENCE, ChosenCheckpoint, Job, Node, PodStatus
from healthd.core.api.health import MemberState
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.local.gang import NAMESPACE, RunSpec, job_of
from healthd.local.machine.slots import Slot, register
from healthd.local.state.folder import database, make_private, runs_dir
from tests.builders import a_pod
from tests.fakes import START


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs that were begun in folders of their own; no process is in either of them now."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir("/")
    for name in ("llama", "gpt"):
        begin(runs_dir() / name, tmp_path / name)
    return runs_dir()


def begin(state: Path, folder: Path, name: str = "") -> None:
    name, out = name or state.name, folder / "out"
    spec = RunSpec(name=name, command=["python", "t.py"], nproc=2, checkpoint=out, state=state, working_dir=folder)
    make_private(state)

    async def store() -> None:
        with EmbeddedCluster.open(database(state), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster:
            await register(cluster, [Slot(name="slot-0"), Slot(name="slot-1", spare=True)], boot_id="b", now=START)
            await cluster.create(job_of(spec, ChosenCheckpoint()))
            await cluster.patch(Job, spec.name, {"spec": {"suspend": True}}, namespace=NAMESPACE)

    asyncio.run(store())


@pytest.mark.usefixtures("runs")
def test_a_run_is_shown_from_any_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--name", "llama"]) == 0

    reported = capsys.readouterr().out
    assert reported.startswith("run llama was stopped\n")
    for words in (f"started in   {tmp_path}/llama", "python t.py (2 ranks", "slot-0       idle", "slot-1       spare"):
        assert words in reported


def test_a_run_whose_healthd_was_killed_has_no_ranks_and_the_same_command_goes_on(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def was_killed() -> None:
        with EmbeddedCluster.open(
            database(runs / "llama"), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())
        ) as cluster:
            await cluster.patch(Job, "llama", {"spec": {"suspend": False}}, namespace=NAMESPACE)
            rank = a_pod("llama-0", node="slot-0", index=0, namespace=NAMESPACE, status=PodStatus(phase="Running"))
            await cluster.create(rank)

    asyncio.run(was_killed())

    assert main(["status", "--name", "llama"]) == 3
    reported = capsys.readouterr().out
    assert reported.startswith("run llama was interrupted\n")
    assert "slot-0       idle" in reported
    assert "way out      the same command" in reported


def test_a_run_that_hangs_says_so(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    since = SystemClock().now() - timedelta(minutes=3)
    members = tuple(SilentMember(rank=each, state=MemberState.SILENT, last_active=since, states="S") for each in "01")
    silence = Silence(since=since, seen_at=since, allowed=12, period=2, members=members)

    async def fell_silent() -> None:
        with EmbeddedCluster.open(
            database(runs / "llama"), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())
        ) as cluster:
            note = {ANNOTATION_SILENCE: msgspec.json.encode(silence).decode()}
            resumed = {"metadata": {"annotations": note}, "spec": {"suspend": False}}
            await cluster.patch(Job, "llama", resumed, namespace=NAMESPACE)

    asyncio.run(fell_silent())
    with (runs / "llama" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["status", "--name", "llama"]) == 0
        shown = capsys.readouterr().out
        main(shown.splitlines()[-1].partition("healthd ")[2].split())
        headline, title, *_ = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]

    assert re.search(r"^  hangs        no rank has worked for 3 min \d+ s: ranks 0, 1 sleep$", shown, re.MULTILINE)
    assert (headline, title) == ("run llama: no recovery so far", "No rank worked")


def test_a_slot_out_of_service_has_the_command_for_its_repair_until_it_is_marked_repaired(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def lose() -> None:
        with EmbeddedCluster.open(
            database(runs / "llama"), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())
        ) as cluster:
            node = await cluster.get(Node, "slot-0")
            record = Record(finding="xid-79", message="Gone", since=START)
            await cluster.patch(Node, "slot-0", cordon_patch(node, record))

    asyncio.run(lose())
    main(["status", "--name", "llama"])
    lost = capsys.readouterr().out
    main(["repair", "slot-0", "--name", "llama"])
    main(["status", "--name", "llama"])

    assert "out of service: Gone (xid-79); after a repair: healthd repair slot-0 --name llama" in lost
    assert "out of service: Gone (xid-79); it is marked repaired, and given back" in capsys.readouterr().out


DAMAGED = b"\x9c no database at all" * 99


def test_a_damaged_state_is_named_with_the_way_out_and_is_in_the_list_of_runs(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database(runs / "llama").write_bytes(DAMAGED)
    for words in (["status", "--name", "llama"], ["explain", "--name", "llama"]):
        assert main(words) == 2
        assert "`healthd forget llama` removes it" in capsys.readouterr().err
    assert main(["runs"]) == 0
    listed = capsys.readouterr()

    assert "`healthd forget llama` removes it" in listed.err
    assert [line.split()[0] for line in listed.out.splitlines()] == ["NAME", "gpt"]
    assert main(["forget", "llama"]) == 0
    assert main(["status", "--name", "llama"]) == 2
    assert "there is no run in" in capsys.readouterr().err


def test_a_damaged_state_elsewhere_is_forgotten_by_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(tmp_path / "st9", tmp_path, "mine")
    database(tmp_path / "st9").write_bytes(DAMAGED)

    assert main(["status", "--state", str(tmp_path / "st9")]) == 2
    assert f"`healthd forget --state {tmp_path / 'st9'}` removes it" in capsys.readouterr().err


def test_the_help_says_what_is_shown_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    main(["status", "--help"])

    assert "(default: none: the devices of this machine)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.usefixtures("runs")
def test_it_is_also_shown_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    main(["status", "--name", "llama", "--json"])

    reported = json.loads(capsys.readouterr().out)
    assert (reported["run"]["name"], reported["run"]["standing"]) == ("llama", "stopped")


def test_a_run_whose_state_is_elsewhere_has_its_own_name_and_commands_that_find_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "st9"
    begin(state, tmp_path, "mine")

    assert main(["status", "--state", str(state)]) == 0
    reported = capsys.readouterr().out
    command = reported.splitlines()[-1].partition("healthd ")[2]
    assert reported.startswith("run mine was stopped\n")
    assert command == f"explain mine --state {state}"
    assert main(command.split()) == 0
    assert main(["explain", "nine", "--state", str(state)]) == 2
    assert "runs on this machine: mine" in capsys.readouterr().err
    assert main(["forget", "--state", str(state)]) == 0
    assert "the run 'mine'" in capsys.readouterr().out


@pytest.mark.usefixtures("runs")
def test_one_that_is_not_there_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--name", "bert"]) == 2
    assert "there are gpt, llama" in capsys.readouterr().err


@pytest.mark.usefixtures("runs")
def test_explain_finds_the_run_that_it_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "llama"]) == 0
    assert capsys.readouterr().out.startswith("run llama: no recovery so far\n")


@pytest.mark.parametrize(("on_bus", "level"), [([], "info"), (["0000:3b:00.0"], "warning")])
def test_gpus_that_cannot_be_found_are_a_warning_where_the_bus_has_them(on_bus: list[str], level: str) -> None:
    with capture_logs() as logs:
        log_no_gpu("NVML: not found", on_bus)

    assert [line["log_level"] for line in logs] == [level]


READERS = (["status"], ["explain"], ["top", "--once"], ["recoveries"], ["alerts", "list"], ["gangs"], ["nodes"])


@pytest.mark.parametrize("command", READERS, ids=" ".join)
@pytest.mark.usefixtures("runs")
def test_a_run_whose_state_is_elsewhere_may_be_named_as_it_was_started(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`healthd run --name mine --state st9` accepts both, so do the commands that read the run."""
    begin(tmp_path / "st9", tmp_path, "mine")

    assert main([*command, "--name", "mine", "--state", str(tmp_path / "st9")]) == 0
    capsys.readouterr()
    assert main([*command, "--name", "llama", "--state", str(tmp_path / "st9")]) == 2
    assert f"the run in {tmp_path / 'st9'} is called mine, not llama" in capsys.readouterr().err


@pytest.mark.usefixtures("runs")
def test_a_run_is_forgotten_by_its_place_only_if_it_has_the_name_that_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "st9"
    begin(state, tmp_path, "mine")

    assert main(["forget", "llama", "--state", str(state)]) == 2
    assert f"the run in {state} is called mine, not llama" in capsys.readouterr().err
    assert main(["forget", "mine", "--state", str(state)]) == 0
    assert main(["status", "--name", "llama"]) == 0


@pytest.mark.usefixtures("runs")
def test_a_damaged_state_is_not_forgotten_under_a_name_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin(tmp_path / "st9", tmp_path, "mine")
    database(tmp_path / "st9").write_bytes(DAMAGED)

    assert main(["forget", "mine", "--state", str(tmp_path / "st9")]) == 2
    assert "could not be read: leave out the name" in capsys.readouterr().err
    assert main(["forget", "--state", str(tmp_path / "st9")]) == 0


def test_to_forget_needs_a_name_or_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forget"]) == 2
    assert "NAME or --state DIR" in capsys.readouterr().err
