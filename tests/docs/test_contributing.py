"""The pages at the root for people who work on healthd: what they name is there."""

from __future__ import annotations

import re

from tests import quick_yaml
from tests.docs.page import ROOT

HOOKS = quick_yaml.load((ROOT / ".pre-commit-config.yaml").read_text())
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_hooks_before_a_commit_are_targets_of_make_check() -> None:
    (check,) = re.findall(r"^check: ([\w ]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    (repo,) = HOOKS["repos"]
    entries = {hook["entry"] for hook in repo["hooks"]}

    assert repo["repo"] == "local"
    assert entries == {f"make --no-print-directory {target}" for target in check.split()}


def test_contributors_read_of_commands_that_exist() -> None:
    named = set(re.findall(r"`make (\w+)", CONTRIBUTING))

    assert "quick" in named
    assert named <= TARGETS
    assert "pre-commit install" in CONTRIBUTING


def test_the_security_policy_leads_to_the_page_with_the_tables() -> None:
    assert "(docs/security.md)" in (ROOT / "SECURITY.md").read_text()
