"""What the options of `healthd run` mean, and which are refused before anything is started."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from healthd.cli.errors import UserError
from healthd.cli.runs.options import add_arguments, with_options, words_of
from healthd.core.config import Config, WebAccess, WebPolicy


def folder_of(text: str) -> Path:
    """The folder that `--checkpoint` names with *text*."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    checkpoint = parser.parse_args(["--nproc", "1", "--checkpoint", text, "--", "true"]).checkpoint
    assert isinstance(checkpoint, Path)
    return checkpoint


@pytest.mark.parametrize("text", ["out", "out/", "./out", "/data/out", "run:1", "a/b://c"])
def test_a_path_is_the_folder_that_it_names(text: str) -> None:
    assert folder_of(text) == Path(text)


@pytest.mark.parametrize("text", ["file:///data/my%20run", "FILE:///data/my%20run", "file:/data/my%20run"])
def test_a_file_url_is_the_folder_that_it_names(text: str) -> None:
    """As `healthd checkpoints latest` reads it: it is no folder with the name `file:` here."""
    assert folder_of(text) == Path("/data/my run")


@pytest.mark.parametrize("text", ["file://server/out", "file://out", "file://"])
def test_a_file_url_without_a_path_of_this_machine_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        folder_of(text)

    assert "write file:///path with three slashes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["s3://bucket/run1", "S3://bucket", "gs://bucket/a", "az://a", "abfss://a", "hdfs://name/a", "my_store://a"]
)
def test_a_url_of_another_store_is_never_taken_for_a_folder(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Saved progress would be looked for in a folder `s3:/`, here, and each restart would begin at step 0."""
    with pytest.raises(SystemExit, match="2"):
        folder_of(text)

    said = " ".join(capsys.readouterr().err.split())
    assert f"{text} is no folder of this machine" in said
    assert "Name that folder, such as out/" in said


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("--nproc", "100000", "'100000' is no number from 1 to 99999"),
        ("--nproc", "0", "'0' is no number from 1 to 99999"),
        ("--min-nodes", "two", "'two' is no number from 1 to 99999"),
        ("--spares", "-1", "'-1' is no number from 0 to 99999"),
    ],
)
def test_a_number_out_of_its_limits_is_refused_with_them(
    option: str, text: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(["--nproc", "1", "--checkpoint", "out", option, text, "--", "true"])

    assert f"argument {option}: {why}" in " ".join(capsys.readouterr().err.split())


def test_the_words_of_a_command_line_mean_the_same_again() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = ["--nproc", "2", "--checkpoint", "out", "--spares", "1", "--grace", "90s", "--name", "a", "--web"]
    given += ["--quiet", "--hang", "restart", "--notify", "echo 1", "--notify", "echo 2", "--min-nodes", "1"]
    args = parser.parse_args([*given, "--", "true"])
    words = words_of(args, {"command"})

    assert parser.parse_args([*words, "--", "true"]) == args
    assert "--fresh" not in words
    assert words_of(args, {"command", "nproc", "checkpoint"})[:2] == ["--spares", "1"]


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--web", "0.0.0.0:9402"], "--web: the page of a run is served to this server alone, and 0.0.0.0:9402 is"),
        (["--config", "h.yaml"], "h.yaml: web.address: the page of a run is served to this server alone, and :9402 is"),
    ],
)
def test_a_page_that_others_reach_is_refused_where_it_was_asked_for(options: list[str], where: str) -> None:
    """A controller may serve it with `web.access: token`."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--nproc", "1", "--checkpoint", "out", *options, "--", "true"])

    with pytest.raises(UserError, match=f"^{re.escape(where)} open to others"):
        with_options(Config(web=WebPolicy(address=":9402", access=WebAccess.TOKEN)), args)
