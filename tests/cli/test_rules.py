"""`healthd rules`: the rules for people, for machines, and as a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from healthd.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints."""
    assert main(["rules", *arguments]) == 0
    return capsys.readouterr().out


def test_the_page_is_what_the_rules_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--reference") == PAGE.read_text(), "the page is old: run `make docs`"


def test_every_row_of_the_page_has_every_column() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]

    assert len(rows) > 800
    assert {row.replace("\\|", "").count("|") for row in rows if row.count("|") > 4} == {8}


def test_rules_are_found_by_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    found = [json.loads(line) for line in said(capsys, "xid-7?", "--json").splitlines()]

    assert {row["rule"] for row in found} == {f"xid-{code}" for code in range(70, 80)}
    assert next(row for row in found if row["rule"] == "xid-79")["outcomes"][0]["quarantines"] is True


def test_a_code_without_a_row_of_its_own_is_found_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(said(capsys, "xid-unknown-999", "--json"))["rule"] == "xid-unknown-*"


def test_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the GPU is gone from the" in said(capsys, "gpu-lost")


def test_a_name_that_no_rule_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "nonsense"]) == 1
    assert "no rule has a name like 'nonsense'" in capsys.readouterr().err
