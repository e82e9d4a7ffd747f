"""The page about trainers quotes files of `examples/trainers`; `tests.frameworks.snippets` runs those files."""

from __future__ import annotations

import argparse

import pytest

from healthd.cli.commands import run
from tests.docs.page import ROOT
from tests.docs.trainers_page import EXAMPLES, PAGE, Example, examples

QUOTED = examples()


def test_every_script_is_quoted_with_its_command() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")} - {"mine.py"}

    assert set(QUOTED) == scripts
    assert PAGE.count("```python") == PAGE.count("```sh") == len(scripts)


@pytest.mark.parametrize("example", QUOTED.values(), ids=QUOTED)
def test_the_page_and_the_file_are_equal(example: Example) -> None:
    assert example.quoted == example.path.read_text()


@pytest.mark.parametrize("example", QUOTED.values(), ids=QUOTED)
def test_a_script_compiles_and_its_command_parses(example: Example) -> None:
    compile(example.quoted, example.name, "exec")
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    args = parser.parse_args([*example.options, "--", "python", *example.script])

    assert example.script == (example.name,)
    assert f'"{args.checkpoint}' in example.quoted
    assert "HEALTHD_RESUME_FROM" in example.quoted


def test_the_readme_of_the_examples_names_every_file() -> None:
    text = (EXAMPLES / "README.md").read_text()

    assert [path.name for path in EXAMPLES.glob("*.py") if f"`{path.name}`" not in text] == []


def test_the_readme_leads_to_the_page() -> None:
    assert "(docs/trainers.md)" in (ROOT / "README.md").read_text()
