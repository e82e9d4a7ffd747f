"""`healthd repair`: from when on a node is repaired, with a check and without."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from healthd.checks.check import CheckOutcome
from healthd.checks.report import CheckReport, FinishedCheck
from healthd.cli.main import main
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import ANNOTATION_REPAIRED, Node, NodeHealth, ObjectMeta
from healthd.core.diagnosis.findings import Ledger
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.local.state.folder import database, held
from tests.builders import a_finding
from tests.fakes import START, ManualClock, counting_uids


def opened(state: Path) -> EmbeddedCluster:
    return EmbeddedCluster.open(database(state), clock=ManualClock(), new_uid=counting_uids())


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A run on this machine with one node."""

    async def fill() -> None:
        (tmp_path / "train").mkdir()
        with opened(tmp_path / "train") as cluster:
            await cluster.create(Node(metadata=ObjectMeta(name="slot-2")))

    asyncio.run(fill())
    return tmp_path / "train"


def repaired_at(state: Path) -> datetime | None:
    async def read() -> str:
        with opened(state) as cluster:
            return (await cluster.get(Node, "slot-2")).metadata.annotations.get(ANNOTATION_REPAIRED, "")

    said = asyncio.run(read())
    return datetime.fromisoformat(said) if said else None


def a_report(folder: Path, status: CheckOutcome, at: datetime) -> str:
    done = FinishedCheck(name="ecc", status=status, why="a row waits", seconds=0, figures={})
    report = CheckReport(node="slot-2", at=at, result=str(status), checks=[done])
    path = folder / "report.json"
    path.write_bytes(msgspec.json.encode(report))
    return str(path)


def test_a_node_that_was_checked_is_repaired_from_then_on(state: Path, tmp_path: Path) -> None:
    checked_at = SystemClock().now() - timedelta(minutes=10)
    report = a_report(tmp_path, CheckOutcome.PASS, checked_at)

    assert main(["repair", "slot-2", "--state", str(state), "--checked", report]) == 0
    assert repaired_at(state) == checked_at


def test_a_node_whose_report_counts_no_gpu_is_not_where_it_should_have_some(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def label() -> None:
        with opened(state) as cluster:
            await cluster.patch(Node, "slot-2", {"metadata": {"labels": {"nvidia.com/gpu.count": "8"}}})

    asyncio.run(label())
    report = a_report(tmp_path, CheckOutcome.PASS, SystemClock().now())

    assert main(["repair", "slot-2", "--state", str(state), "--checked", report]) == 2
    assert repaired_at(state) is None
    assert "no GPU in it was counted, and 8 are expected" in capsys.readouterr().err


def test_a_node_whose_check_failed_is_not(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = a_report(tmp_path, CheckOutcome.FAIL, SystemClock().now())

    assert main(["repair", "slot-2", "--state", str(state), "--checked", report]) == 2
    assert repaired_at(state) is None
    assert "slot-2 is not marked repaired; the report does not prove that it is well" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", "no json"])
def test_what_is_no_report_marks_nothing(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)

    assert main(["repair", "slot-2", "--state", str(state), "--checked", str(path)]) == 2
    assert "is no report of `healthd check --json`" in capsys.readouterr().err
    assert repaired_at(state) is None


def test_what_was_said_of_a_run_that_does_not_go_on_is_done_at_its_next_start(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def lose() -> None:
        with opened(state) as cluster:
            node = await cluster.get(Node, "slot-2")
            record = Record(finding="xid-79", message="Gone", since=START)
            await cluster.patch(Node, "slot-2", cordon_patch(node, record))

    asyncio.run(lose())
    assert main(["repair", "slot-2", "--state", str(state)]) == 0
    idle = capsys.readouterr().out
    with held(state):
        assert main(["repair", "slot-2", "--state", str(state)]) == 0
    assert "xid-79 is marked repaired; no healthd runs there now: the next start of the run gives it back" in idle
    assert capsys.readouterr().out == "slot-2: xid-79 is marked repaired\n"


def test_a_repair_is_no_earlier_than_the_fault_where_the_clock_of_the_agent_is_ahead(state: Path) -> None:
    seen_at = SystemClock().now() + timedelta(hours=1)
    gone = a_finding(at=seen_at)

    async def lose() -> None:
        uids = counting_uids("health")
        with EmbeddedCluster.open(database(state), clock=ManualClock(), new_uid=uids) as cluster:
            await cluster.create(NodeHealth(metadata=ObjectMeta(name="slot-2")))
            status = {"findings": msgspec.to_builtins([gone])}
            await cluster.patch(NodeHealth, "slot-2", {"status": status}, subresource="status")

    asyncio.run(lose())

    assert main(["repair", "slot-2", "--state", str(state)]) == 0
    assert repaired_at(state) == seen_at
    agent = Ledger.of([gone]).clear_by_repair(seen_at, noticed=seen_at + timedelta(minutes=1))
    assert agent.standing == []


def test_without_a_report_the_annotation_alone_counts(state: Path) -> None:
    assert main(["repair", "slot-2", "--state", str(state)]) == 0
    assert repaired_at(state) is not None
