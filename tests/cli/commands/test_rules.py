"""`healthd rules`: the rules for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from healthd.cli.main import main


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints."""
    assert main(["rules", *arguments]) == 0
    return capsys.readouterr().out


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


OWN = """\
judge:
  off: [clock-free-running]
  shadow: ["nvml-*"]
  limits: [ib-symbol-errors 50 in 2h]
  tiers: [fs-read-only record, xid-unknown-* reboot]
  rules:
    - {name: site-mydrv-fatal, message: "mydrv <device>: fatal error *", when: 3 in 1h, tier: reset, shadow: false,
       example: "[ 1.0] mydrv 0000:3b:00.0: fatal error 7", summary: the accelerator met a fatal error}
    - {name: site-symbols, reading: ib.symbol_error, when: grows 20 in 1h, summary: more than good cables have}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A configuration that changes rules and adds two."""
    path = tmp_path / "healthd.yaml"
    path.write_text(OWN)
    return path


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The rules that are printed, by name."""
    return {row["rule"]: row for row in map(json.loads, said(capsys, "--json", *arguments).splitlines())}


def test_the_sites_own_rules_are_listed_with_their_configuration(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    found = rows(capsys, "site-*", "--config", str(own))

    line, reading = found["site-mydrv-fatal"], found["site-symbols"]
    assert (line["source"], line["reads"], line["threshold"]) == (
        "kernel log",
        "mydrv <device>: fatal error *",
        "3 in 1h",
    )
    assert (line["outcomes"][0]["quarantines"], line["mode"]) == (True, "on")
    assert (reading["source"], reading["threshold"], reading["mode"]) == ("ib", "grows by 20 in 1h", "shadow")


def test_rules_are_listed_as_the_configuration_has_them(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    found, built = rows(capsys, "--config", str(own)), rows(capsys)

    assert set(found) - set(built) == {"site-mydrv-fatal", "site-symbols"}
    assert found["fs-read-only"]["outcomes"][0]["severity"] == "info"
    assert found["xid-unknown-*"]["outcomes"][0]["quarantines"] is True
    assert found["ib-symbol-errors"]["threshold"] == "grows by 50 in 2h"
    modes = {name: found[name]["mode"] for name in ("clock-free-running", "nvml-temperature", "xid-79")}
    assert modes == {"clock-free-running": "off", "nvml-temperature": "shadow", "xid-79": "on"}


def test_a_rule_that_is_off_or_tried_is_shown_so(capsys: pytest.CaptureFixture[str], own: Path) -> None:
    assert "off: " in said(capsys, "clock-free-running", "--config", str(own))
    assert "in shadow: " in said(capsys, "site-symbols", "--config", str(own))


def test_a_configuration_with_a_fault_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "healthd.yaml"
    path.write_text("judge: {tiers: [no-such-rule record]}")

    assert main(["rules", "--config", str(path)]) == 2
    assert "no rule 'no-such-rule'" in capsys.readouterr().err
