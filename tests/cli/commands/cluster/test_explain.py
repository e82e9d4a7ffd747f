"""`healthd explain`: reads the state of a run, and says what is missing when it cannot."""

from __future__ import annotations

import asyncio
import fcntl
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from healthd.cli.main import main
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import (
    ANNOTATION_CHECKPOINT,
    ANNOTATION_RESTART,
    ANNOTATION_SAVES,
    ANNOTATION_SILENCE,
    Attempt,
    ChosenCheckpoint,
    Job,
    Recovery,
    RecoveryStatus,
    TimelineEntry,
)
from healthd.core.api.health import MemberState
from healthd.core.api.model import Phase
from healthd.core.api.save_stats import Save, Saves
from healthd.core.hang.history import ActivityHistory, RankHistory
from healthd.core.hang.silence import Silence, SilentMember
from healthd.core.hang.suspects.evidence import ProcessEvidence, RankEvidence, TaskState
from healthd.core.hang.suspects.vote import vote
from healthd.local.hang.record import HangRecord, encoded
from healthd.local.state.folder import database
from tests.builders import a_cause, a_job, a_node, a_recovery
from tests.fakes import START, ManualClock, counting_uids

RECOVERED = RecoveryStatus(
    phase=Phase.RECOVERED,
    message="training moved on to step 20",
    timeline=[
        TimelineEntry(phase=Phase.STOPPING, at=START, message="stop first, diagnose later"),
        TimelineEntry(phase=Phase.RECOVERED, at=START, message="training moved on to step 20"),
    ],
)
HELD = RecoveryStatus(
    phase=Phase.HELD,
    held_in=Phase.DETECTED,
    message="slot-2 is not quarantined",
    timeline=[TimelineEntry(phase=Phase.HELD, at=START, message="slot-2 is not quarantined")],
)


SAVING = {ANNOTATION_RESTART: "enabled", ANNOTATION_CHECKPOINT: "file:///c"}
SAVES = Saves(good=[Save(step=7, at=START)], refused="/c/step_8", why_refused="torn")


def a_state(path: Path, names: Sequence[str], status: RecoveryStatus = RECOVERED, *, job: Job | None = None) -> Path:
    """The state of a run with a recovery of each name; with *job*, which runs, they are its."""

    async def fill() -> None:
        path.mkdir(parents=True)
        with EmbeddedCluster.open(database(path), clock=ManualClock(), new_uid=counting_uids()) as cluster:
            gang = await begin(cluster, job) if job else None
            for name in names:
                await cluster.create(a_recovery(name, gang=gang) if gang else a_recovery(name))
                patch = {"status": msgspec.to_builtins(status)}
                await cluster.patch(Recovery, name, patch, namespace="default", subresource="status")

    asyncio.run(fill())
    return path


async def begin(cluster: EmbeddedCluster, job: Job) -> Job:
    """Its own controller has set it going."""
    made = await cluster.create(job)
    started = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    return await cluster.patch(Job, made.metadata.name, started, namespace="default", subresource="status")


def a_saving_job(saves: Saves = SAVES) -> Job:
    """A gang whose checkpoints were looked at."""
    return a_job("train", annotations={**SAVING, ANNOTATION_SAVES: msgspec.json.encode(saves).decode()})


SILENCE = Silence(
    since=START,
    seen_at=START,
    allowed=12,
    period=2,
    members=(SilentMember(rank="1", state=MemberState.SILENT, last_active=START, states="T"),),
)


def a_silent_job(**notes: str) -> Job:
    """A gang that hangs, with the annotations *notes* by the ends of their names."""
    own = {f"healthd.dev/{name.replace('_', '-')}": text for name, text in notes.items()}
    return a_job("train", annotations={**SAVING, ANNOTATION_SILENCE: msgspec.json.encode(SILENCE).decode(), **own})


@pytest.mark.parametrize("notes", [{}, {"hang_evidence": "{"}], ids=["of an older healthd", "broken"])
def test_a_hang_that_is_not_acted_on_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], notes: dict[str, str]
) -> None:
    state = a_state(tmp_path / "train", [], job=a_silent_job(**notes))

    assert main(["explain", "train", "--state", str(state)]) == 0
    shown = capsys.readouterr().out
    assert "rank 1 is stopped (SIGSTOP)" in shown
    assert "RANKS" not in shown


def test_the_table_of_a_hang_names_the_suspect_and_prints_no_escapes_of_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = [TaskState.SLEEPING, TaskState.STOPPED, TaskState.SLEEPING, TaskState.SLEEPING]
    ranks = tuple(
        RankEvidence(n, node=f"slot-{n}", process=ProcessEvidence(state, "\x1b[2Jevil\n", 7), log=("\x1b]0;x",))
        for n, state in enumerate(states)
    )
    note = encoded(HangRecord(since=START, location=vote(ranks), ranks=ranks))
    state = a_state(tmp_path / "train", [], job=a_silent_job(hang_evidence=note))

    assert main(["explain", "train", "--state", str(state)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert "  rank 1 (node slot-1) holds up the others (90% sure)" in lines
    header = lines.index(next(line for line in lines if line.split()[:1] == ["RANKS"]))
    assert [line.split()[0] for line in lines[header + 1 : header + 3]] == ["1", "0,2-3"]


def a_pictured_hang() -> str:
    """The note of a hang whose record has a picture; rank 1 is stopped, and its node's name is hostile."""
    states = [TaskState.SLEEPING, TaskState.STOPPED, TaskState.SLEEPING]
    ranks = tuple(RankEvidence(n, node="<script>\x1b", process=ProcessEvidence(each)) for n, each in enumerate(states))
    signs = tuple(RankHistory(n, "7770") for n in range(3))
    history = ActivityHistory(start=START, interval=2, ranks=signs)
    return encoded(HangRecord(since=START, location=vote(ranks), ranks=ranks, history=history))


class TestPictureOfAHang:
    @pytest.mark.parametrize(("env", "shown"), [({}, "▇▇▇·"), ({"NO_COLOR": "1"}, "###."), ({"TERM": "dumb"}, "###.")])
    def test_each_rank_has_a_line_in_signs_that_the_terminal_has(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        env: dict[str, str],
        shown: str,
    ) -> None:
        for name in ("NO_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        state = a_state(tmp_path / "train", [], job=a_silent_job(hang_evidence=a_pictured_hang()))

        assert main(["explain", "train", "--state", str(state)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[:3] for line in lines if line.endswith(shown)] == [
            [">", "rank", "1"],
            ["rank", "0", "<script>\\u001b"],
            ["rank", "2", "<script>\\u001b"],
        ]

    def test_it_is_written_as_an_svg(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        state = a_state(tmp_path / "train", [], job=a_silent_job(hang_evidence=a_pictured_hang()))
        file = tmp_path / "hang.svg"

        assert main(["explain", "train", "--state", str(state), "--svg", str(file)]) == 0
        assert capsys.readouterr().out == f"{file}\n"
        assert "&lt;script&gt;\\u001b" in file.read_text()

    @pytest.mark.parametrize("notes", [{}, {"hang_evidence": "{"}], ids=["of an older healthd", "broken"])
    def test_without_one_no_file_is_written_and_the_error_says_why(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], notes: dict[str, str]
    ) -> None:
        state = a_state(tmp_path / "train", [], job=a_silent_job(**notes))
        file = tmp_path / "hang.svg"

        assert main(["explain", "train", "--state", str(state), "--svg", str(file)]) != 0
        assert "no picture of a hang is kept" in capsys.readouterr().err
        assert not file.exists()

    def test_a_file_that_cannot_be_written_is_named(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        state = a_state(tmp_path / "train", [], job=a_silent_job(hang_evidence=a_pictured_hang()))

        assert main(["explain", "train", "--state", str(state), "--svg", str(tmp_path / "no" / "hang.svg")]) != 0
        assert "hang.svg cannot be written: No such file or directory" in capsys.readouterr().err


def test_a_rank_that_the_others_waited_for_is_shown_without_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = {"since": START, "seenAt": START, "ran": 0.8, "starved": 0, "peersRan": 0.6, "peersStarved": 0}
    note = msgspec.json.encode([{"rank": "2\x1b[2J", "slower": 0.25, "confidence": 0.9, **slow}]).decode()
    state = a_state(tmp_path / "train", [], job=a_job("train", annotations={"healthd.dev/stragglers": note}))

    assert main(["explain", "train", "--state", str(state)]) == 0
    shown = capsys.readouterr().out
    assert "25% slower than its peers" in shown
    assert "\x1b" not in shown


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return a_state(tmp_path / "train", ["train-1", "train-2"])


def test_without_a_name_every_recovery_is_a_line(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--state", str(state)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["RECOVERY", "train-1", "train-2"]


def test_a_recovery_is_explained_by_name(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "train-2", "--state", str(state)]) == 0

    assert capsys.readouterr().out.startswith("train-2: Recovered")


@pytest.mark.parametrize("said", ["job/train", "jobs/train", "Job/train"])
def test_the_newest_recovery_of_a_gang_is_explained_however_its_kind_is_spelled(
    state: Path, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    assert main(["explain", said, "--state", str(state)]) == 0

    assert capsys.readouterr().out.startswith("train-2: Recovered")


def test_the_logs_of_the_stopped_attempt_are_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state / "logs" / "attempt-0").mkdir(parents=True)

    assert main(["explain", "train-1", "--state", str(state)]) == 0
    assert f"{state}/logs/attempt-0" in capsys.readouterr().out


def test_the_logs_of_every_attempt_that_was_stopped_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = TimelineEntry(phase=Phase.STOPPING, at=START, message="again")
    attempts = [Attempt(number=number, checkpoint=ChosenCheckpoint()) for number in (1, 2)]
    status = RecoveryStatus(phase=Phase.CONFIRMING, timeline=[stopped, stopped], attempts=attempts)
    state = a_state(tmp_path / "train", ["train-1"], status)
    for number in range(3):
        (state / "logs" / f"attempt-{number}").mkdir(parents=True)

    assert main(["explain", "train-1", "--state", str(state)]) == 0
    reported = [line.strip() for line in capsys.readouterr().out.splitlines() if "/logs/" in line]
    assert reported == [f"{state}/logs/attempt-0", f"{state}/logs/attempt-1"]


def test_the_command_for_the_repair_finds_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = msgspec.structs.replace(HELD, causes=[a_cause(node="node-a")])
    state = a_state(tmp_path / "st9", ["train-1"], held)
    with EmbeddedCluster.open(database(state), clock=ManualClock(), new_uid=lambda: "uid-node") as cluster:
        asyncio.run(cluster.create(a_node("node-a")))

    assert main(["explain", "train-1", "--state", str(state)]) == 0
    assert f"`healthd repair node-a --state {state}`" in " ".join(capsys.readouterr().out.split())


def test_a_gang_that_still_runs_has_no_last_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = a_state(tmp_path / "train", ["train-1"], HELD)
    (state / "logs" / "attempt-0").mkdir(parents=True)

    assert main(["explain", "train-1", "--state", str(state)]) == 0
    assert "Last words" not in capsys.readouterr().out


def test_json_has_one_object_a_line(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--state", str(state), "--json"]) == 0

    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(o["recovery"], o["phase"]) for o in objects] == [("train-1", "Recovered"), ("train-2", "Recovered")]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("train-", "'train-' could be train-1, train-2"),
        ("trian-2", "did you mean 'train-2'?"),
        ("zzz", "runs on this machine: train; recoveries of train: train-1, train-2"),
    ],
)
def test_an_unclear_name_is_refused_with_what_there_is(
    name: str, says: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name, "--state", str(state)]) == 2

    assert says in capsys.readouterr().err


def test_a_place_without_state_is_named_and_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--state", str(tmp_path)]) == 2

    assert f"there is no run in {tmp_path}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_gang_without_recoveries_shows_what_a_fault_would_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = a_state(tmp_path / "calm", [], job=a_saving_job())

    assert main(["explain", "job/train", "--state", str(state)]) == 0
    headline, title, cost, *more = capsys.readouterr().out.splitlines()
    assert (headline, title) == ("job/train in default: no recovery so far", "The next fault")
    assert cost.strip().startswith("a fault now would cost ")
    assert "the newest good checkpoint is step 7" in " ".join([cost, *more])
    assert "/c/step_8 would be refused: torn" in " ".join(more)


def test_programs_get_it_in_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = a_state(tmp_path / "calm", [], job=a_saving_job())

    assert main(["explain", "train", "--state", str(state), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["recovery"], reported["gang"], reported["at_stake"]["newest_step"]) == (None, "Job train", 7)
    assert reported["at_stake"]["lost_ms"] > 0


def test_a_gang_that_was_recovered_has_the_cost_beside_its_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = a_state(tmp_path / "again", ["train-1", "train-2"], job=a_saving_job())

    assert main(["explain", "train-1", "--state", str(state)]) == 0
    older = capsys.readouterr().out
    assert main(["explain", "job/train", "--state", str(state)]) == 0
    newest = capsys.readouterr().out
    assert "The next fault" not in older
    assert newest.startswith("train-2: Recovered")
    assert "a fault now would cost" in newest


def test_while_a_recovery_runs_it_shows_what_this_fault_has_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping = TimelineEntry(phase=Phase.STOPPING, at=START, message="stop first")
    status = RecoveryStatus(phase=Phase.STOPPING, timeline=[stopping])
    before = Saves(good=[Save(step=7, at=START - timedelta(minutes=9))])
    state = a_state(tmp_path / "now", ["train-1"], status, job=a_saving_job(before))

    assert main(["explain", "job/train", "--state", str(state)]) == 0
    reported = capsys.readouterr().out
    assert "the newest checkpoint that was seen to be good was 9m old when the fault came" in reported
    assert "The next fault" not in reported


def test_a_restart_with_which_no_healthd_goes_on_is_not_at_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """healthd was killed in the middle of a restart."""
    stopping = TimelineEntry(phase=Phase.STOPPING, at=START, message="stop first")
    status = RecoveryStatus(phase=Phase.STOPPING, message="stop first", timeline=[stopping])
    state = a_state(tmp_path / "now", ["train-1"], status)

    assert main(["explain", "train-1", "--state", str(state)]) == 0
    killed = " ".join(capsys.readouterr().out.split())
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["explain", "train-1", "--state", str(state)]) == 0
    alive = " ".join(capsys.readouterr().out.split())

    assert "Now no healthd runs that goes on with it" in killed
    assert "The same command, given where the run was started, goes on" in killed
    assert "at work" not in killed
    assert "Now it is at work: stop first" in alive


def test_a_restart_that_waits_says_what_a_person_can_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waits = RecoveryStatus(
        phase=Phase.HELD,
        held_in=Phase.CHOOSING,
        message="no checkpoint loads",
        timeline=[TimelineEntry(phase=Phase.HELD, at=START, message="no checkpoint loads")],
    )

    assert main(["explain", "train-1", "--state", str(a_state(tmp_path / "held", ["train-1"], waits))]) == 0

    explained = " ".join(capsys.readouterr().out.split())
    assert "what to do: where checkpoints were moved or deleted, or a disk is not mounted, put that right" in explained


def test_a_run_without_recoveries_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--state", str(a_state(tmp_path / "calm", []))]) == 0

    assert "no recovery so far" in capsys.readouterr().out
