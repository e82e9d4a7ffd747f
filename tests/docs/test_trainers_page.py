"""The scripts and commands that the page about trainers gives people to copy; `tests.frameworks.snippets` runs them."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from healthd.cli import run
from tests.docs.page import ROOT

PAGE = (ROOT / "docs" / "trainers.md").read_text()
SNIPPETS = re.findall(r"```python\n# (\w+\.py)\n(.*?)```\n\n```sh\n(.*?)\n```", PAGE, re.DOTALL)


def test_every_script_of_the_page_has_its_command() -> None:
    assert [name for name, _, _ in SNIPPETS] == ["ddp.py", "trainer.py", "fit.py", "engine.py"]
    assert PAGE.count("```python") == PAGE.count("```sh") == len(SNIPPETS)


@pytest.mark.parametrize(("name", "script", "line"), SNIPPETS, ids=[name for name, _, _ in SNIPPETS])
def test_a_script_can_be_read_and_its_command_is_one(name: str, script: str, line: str) -> None:
    compile(script, name, "exec")
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    args = parser.parse_args(shlex.split(line.rpartition("healthd run ")[2]))

    assert args.command == ["python", name]
    assert f'"{args.checkpoint}' in script
    assert "HEALTHD_RESUME_FROM" in script


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/trainers.md)" in (ROOT / "README.md").read_text()
