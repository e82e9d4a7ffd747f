"""The table of nodes: its order, and how a row reads."""

from __future__ import annotations

from healthd.core.api.model import Verdict
from healthd.core.api.remediations import SpareCheck, SpareCheckOutcome
from healthd.core.report.listing.nodes import COLUMNS, NodeRow, cells, node_rows, summary
from tests.builders import a_node, a_nodehealth
from tests.core.reliability.histories import NOW, SLOTS, a_history, a_machine, a_quarantine, an_outage

BAD = [an_outage(day, slot=SLOTS[3], gpu="00033", node="gpu-03", helped="reset") for day in (3, 17, 31, 45, 62)]


def rows(**verdicts: Verdict) -> list[NodeRow]:
    """Forty machines, the third with five outages and the second with one."""
    outages = {3: BAD, 2: [an_outage(5)]}
    histories = [a_history(n, outages=outages.get(n, ())) for n in range(1, 41)]
    health = {name.replace("_", "-"): a_nodehealth(verdict=verdict) for name, verdict in verdicts.items()}
    return node_rows([a_machine(n) for n in range(1, 41)], health, histories, NOW)


def texts(row: NodeRow) -> dict[str, str]:
    """The text of each column, by its title."""
    return dict(zip((column.title for column in COLUMNS), cells(row), strict=True))


def test_lemons_come_first_and_then_those_with_outages() -> None:
    assert [row.node for row in rows()][:3] == ["gpu-03", "gpu-02", "gpu-01"]


def test_a_row_says_how_often_a_node_failed_and_whether_it_is_a_lemon() -> None:
    shown = texts(rows(gpu_03=Verdict.DEGRADED)[0])

    assert shown["VERDICT"] == "degraded"
    assert shown["IN SERVICE SINCE"] == "2026-01-01"
    assert shown["FAULTS"] == "5"
    assert shown["LEMON"] == "yes (99 %)"
    assert shown["LAST FAULT"] == "xid-79 2026-03-04 00:00"
    assert shown["HELPED"] == "reset"


def test_a_rate_has_its_interval() -> None:
    row = rows()[0]

    assert texts(row)["FAULTS/MONTH"] == f"{row.rate:.2f} ({row.low:.2f}-{row.high:.2f})"


def test_a_node_of_few_faults_is_no_lemon_and_needs_no_percentage() -> None:
    assert texts(rows()[1])["LEMON"] == "no"


def test_a_node_without_a_history_says_so() -> None:
    (row,) = node_rows([a_node("new")], {}, [], NOW)

    assert (row.verdict, row.reason, texts(row)["FAULTS"]) == ("unknown", "no history yet", "")


def test_a_node_in_quarantine_says_so() -> None:
    (row,) = node_rows([a_machine(1, quarantined=a_quarantine())], {}, [], NOW)

    assert row.verdict == "quarantined"


def test_a_healthy_report_of_long_ago_is_unknown() -> None:
    (row,) = node_rows([a_machine(1)], {"gpu-01": a_nodehealth(verdict=Verdict.HEALTHY)}, [], NOW)

    assert row.verdict == "unknown"


def test_below_the_table_stands_why_each_lemon_is_one() -> None:
    (line,) = summary(rows())

    assert line.startswith("gpu-03: 5 outages in 72 days of service")


def test_a_spare_says_how_its_last_check_ended() -> None:
    def said(outcome: SpareCheckOutcome | None, uid: str = "uid-a") -> str:
        check = SpareCheck(number=1, at=NOW, ended_at=NOW, node_uid=uid, outcome=outcome)
        (row,) = node_rows([a_node("a", spare=True, uid="uid-a")], {}, [], NOW, {"a": check})
        return cells(row)[[column.title for column in COLUMNS].index("SPARE CHECK")]

    assert said(SpareCheckOutcome.PASSED) == f"passed {NOW:%Y-%m-%d %H:%M}"
    assert said(SpareCheckOutcome.FAILED) == f"failed {NOW:%Y-%m-%d %H:%M}"
    assert said(None) == f"runs since {NOW:%Y-%m-%d %H:%M}"
    assert said(SpareCheckOutcome.PASSED, "another-machine") == "never"
