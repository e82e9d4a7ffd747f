"""The pages `docs/findings/`: what takes a node out comes first, and nothing is missing."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from healthd.cli.main import main
from healthd.cli.rules.pages import INDEX, PAGES
from healthd.cli.rules.reference import Section, reference
from healthd.core.diagnosis.rule_reference import all_rules

FOLDER = Path(__file__).parents[2] / "docs" / "findings"
OWN = """\
judge:
  off: [nvml-gpu-lost]
  shadow: [gpu-lost]
  tiers: [fs-read-only reboot, xid-79 record]
  rules:
    - {name: site-mydrv-fatal, message: "mydrv <device>: fatal error *", tier: reset, shadow: false,
       example: "[ 1.0] mydrv 0000:3b:00.0: fatal error 7", summary: the accelerator met a fatal error}
"""


def written(folder: Path, *arguments: str) -> dict[str, str]:
    """The pages that the command writes into *folder*, by file name."""
    assert main(["rules", "--reference", str(folder), *arguments]) == 0
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference(all_rules())


def rules_on(page: str) -> list[str]:
    """The names in the first column of its tables."""
    return re.findall(r"^\| `([a-z0-9*-]+)`", page, re.MULTILINE)


def taken_out_by(index: str) -> list[str]:
    """The rules, and patterns of rules, that the index says take a node out."""
    return rules_on(index.partition("## What takes a node out")[2].partition("\n## ")[0])


def test_the_folder_is_what_the_rules_say(tmp_path: Path) -> None:
    there = {path.name: path.read_text() for path in FOLDER.iterdir()}

    assert written(tmp_path / "docs" / "findings") == there, "the pages are old: run `make docs`"


def test_every_rule_is_on_one_page(pages: dict[str, str]) -> None:
    named = [rule for page in PAGES for rule in rules_on(pages[page.file])]

    assert sorted(named) == sorted(row.rule for row in all_rules())


def test_every_row_has_a_cell_for_each_column(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        for table in re.findall(r"(?:^\|.*\n)+", page.replace("\\|", ""), re.MULTILINE):
            assert len({line.count("|") for line in table.splitlines()}) == 1, (name, table[:200])


def test_each_page_begins_with_what_is_worst(pages: dict[str, str]) -> None:
    order = [str(section) for section in Section]

    for page in PAGES:
        heads = re.findall(r"^## (.*)$", pages[page.file], re.MULTILINE)
        assert heads == [section for section in order if section in heads], page.file


def test_obsolete_numbers_come_last(pages: dict[str, str]) -> None:
    assert rules_on(pages["xid.md"].rpartition("\n## ")[2])[:3] == ["xid-1", "xid-2", "xid-3"]


def test_a_fault_of_the_application_is_listed_as_harmless_to_the_node(pages: dict[str, str]) -> None:
    degraded, _, healthy = pages["xid.md"].partition(f"## {Section.HEALTHY}")

    assert "xid-13" in rules_on(healthy)
    assert "xid-13" not in rules_on(degraded)


def test_a_switch_error_that_nvidia_calls_fatal_comes_before_the_others(pages: dict[str, str]) -> None:
    fatal, _, others = pages["sxid.md"].partition(f"## {Section.IF_FATAL}")

    assert "sxid-10003" in rules_on(fatal)
    assert {"sxid-10001", "sxid-unknown-*"} <= set(rules_on(others))


def test_the_index_names_all_that_takes_a_node_out_and_nothing_else(pages: dict[str, str]) -> None:
    out = taken_out_by(pages[INDEX])
    exact, families = [name for name in out if "*" not in name], [name for name in out if "*" in name]
    quarantining = {row.rule for row in all_rules() if row.quarantines}
    rest = quarantining - set(exact)
    counts = re.findall(r"\((\d+) rules\)", pages[INDEX])

    assert set(exact) <= quarantining
    assert all(any(fnmatchcase(rule, family) for family in families) for rule in rest)
    assert sum(map(int, counts)) == len(rest)


def test_pages_of_a_configuration_have_its_tiers_shadows_and_rules(tmp_path: Path) -> None:
    own = tmp_path / "healthd.yaml"
    own.write_text(OWN)

    found = written(tmp_path / "pages", "--config", str(own))

    out = taken_out_by(found[INDEX])
    assert {"fs-read-only", "site-mydrv-fatal"} <= set(out)
    assert not {"gpu-lost", "nvml-gpu-lost", "xid-79"} & set(out)
    assert rules_on(found["kernel.md"].partition(f"## {Section.INACTIVE}")[2]) == ["gpu-lost"]


def test_a_pattern_leaves_out_pages_without_rules(tmp_path: Path) -> None:
    assert set(written(tmp_path, "efa-retransmit*")) == {INDEX, "efa.md"}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")

    assert main(["rules", "--reference", str(tmp_path / "file" / "pages")]) == 2
    assert f"cannot write {tmp_path}/file" in capsys.readouterr().err
