"""`healthd nodes`: for people with wide and narrow terminals, for pipes, and for programs."""

from __future__ import annotations

import argparse
import json

import pytest

from healthd.cli.commands.cluster import nodes
from healthd.cli.errors import UserError
from tests.core.report.listing.test_nodes import rows


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is printed."""
    parser = argparse.ArgumentParser()
    nodes.add_arguments(parser)
    nodes.show(rows(), parser.parse_args(words))
    return capsys.readouterr().out


def test_a_pipe_gets_each_node_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()

    assert lines[0].split()[:2] == ["NODE", "VERDICT"]
    assert lines[1].startswith("gpu-03 ")
    assert lines[-1].startswith("gpu-03: 5 outages")
    assert len(lines) == 1 + 40 + 1


def test_wide_says_what_failed_last_and_what_helped(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "-o", "wide", "gpu-03")

    assert {"HELPED", "reset", "xid-79", "MACHINE"} <= set(out.split())


def test_json_has_one_object_a_line_with_the_gpus_that_failed(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "-o", "json", "gpu-03")

    (row,) = map(json.loads, out.splitlines())
    assert (row["node"], row["lemon"], row["outages"]) == ("gpu-03", True, 5)
    assert [(gpu["gpu"], gpu["outages"]) for gpu in row["gpus"]] == [("00033", 5)]


def test_a_node_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="there is no node nowhere"):
        printed(capsys, "gpu-03", "nowhere")
