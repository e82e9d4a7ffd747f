"""`healthd spares plan`: with and without a cluster."""

from __future__ import annotations

import argparse
import json

import pytest

from healthd.cli.commands.cluster import spares
from healthd.cli.errors import UserError
from healthd.cli.main import main
from healthd.core.report.spares_text import plan_lines
from tests.core.reliability.histories import NOW, a_history, an_outage


def the_plan(*words: str, pool: set[str] | None = None) -> list[str]:
    """The plan of a cluster of sixty nodes, of which each third failed once."""
    parser = argparse.ArgumentParser()
    spares.add_arguments(parser)
    fleet = [a_history(n, outages=[an_outage(n, hours=24)] if n % 3 == 0 else []) for n in range(60)]
    (planned,) = spares.by_history(fleet, pool or set(), parser.parse_args(["plan", *words]), NOW)
    return list(plan_lines(planned))


def test_it_answers_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["spares", "plan", "--nodes", "63"])

    out = capsys.readouterr().out
    assert code == 0
    assert "2 spares: a node is then missing for 0.87 % of the time (asked for: at most 1 %)." in out
    assert "arXiv 2410.21680" in out
    assert "assumption" in out


def test_what_is_given_by_options_is_not_taken_from_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    main(["spares", "plan", "--nodes", "63", "--failures", "1", "--repair-hours", "4", "-o", "json"])

    found = json.loads(capsys.readouterr().out)
    assert found["failuresPerNodeMonth"] == {"value": 1, "source": "given by an option"}
    assert found["wanted"] == 2
    assert found["options"][found["wanted"]]["shortage"] <= found["shortage"] == 0.01


def test_a_cluster_is_planned_by_its_own_failures_and_repairs() -> None:
    lines = "\n".join(the_plan())

    assert "20 failures in 4,360 node-days of this fleet" in lines
    assert "mean of 20 repairs of this fleet" in lines


def test_spares_that_are_there_are_not_counted_as_nodes_that_must_work() -> None:
    lines = the_plan(pool={"gpu-05"})

    assert lines[0] == "59 nodes of 8 x NVIDIA H100 80GB HBM3 that must work"
    assert lines[-1] == "There are 1: 1 too few."


def test_a_smaller_chance_takes_more_spares() -> None:
    assert next(line for line in the_plan("--shortage", "0.01%") if line.startswith("> ")).split()[1] == "4"


def test_repairs_that_cannot_keep_up_are_said() -> None:
    assert the_plan("--crews", "1", "--repair-hours", "200")[-1].startswith("No number of spares is enough")


def test_a_cluster_without_a_history_names_the_way_out() -> None:
    with pytest.raises(UserError, match="--nodes"):
        spares.by_history([], set(), argparse.Namespace(), NOW)


@pytest.mark.parametrize(("text", "value"), [("1%", 0.01), ("0.5%", 0.005), ("0.02", 0.02)])
def test_a_shortage_is_a_percentage_or_a_share(text: str, value: float) -> None:
    assert spares.share(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "words", [["--shortage", "3"], ["--shortage", "nan"], ["--nodes", "0"], ["--nodes", "1e9"], ["--failures", "-1"]]
)
def test_what_makes_no_sense_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spares", "plan", *words]) == 2
    assert words[0] in capsys.readouterr().err
