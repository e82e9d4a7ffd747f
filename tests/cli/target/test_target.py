"""Where a command looks: on this machine unless something says that a cluster is meant."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import pytest

from healthd.cli.errors import UserError
from healthd.cli.target import target
from healthd.local.state.folder import database


def parsed(*options: str) -> argparse.Namespace:
    """The options of a command line."""
    parser = argparse.ArgumentParser()
    target.add_target_arguments(parser)
    return parser.parse_args(options)


@pytest.mark.parametrize("options", [["--kubeconfig", "/k"], ["--context", "prod"], ["-n", "research"]])
def test_an_option_that_names_a_cluster_means_it(options: list[str]) -> None:
    assert target.is_cluster(parsed(*options))


def test_a_gang_spelled_as_kubectl_does_is_one_of_a_cluster() -> None:
    assert target.is_cluster(parsed(), "job/llama")


@pytest.mark.parametrize("options", [[], ["--name", "train"], ["--state", "/somewhere"]])
def test_else_a_run_on_this_machine_is_meant(options: list[str]) -> None:
    assert not target.is_cluster(parsed(*options), "train-1", environ={})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """That of somebody who uses kubectl."""
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").touch()
    return tmp_path


def test_where_nothing_ever_ran_the_cluster_that_kubectl_knows_is_meant(home: Path) -> None:
    nowhere = home / "runs"

    assert target.is_cluster(parsed(), "train-1", environ={"HOME": str(home)}, runs=nowhere)
    assert target.is_cluster(parsed(), "train-1", environ={"KUBECONFIG": "/k"}, runs=nowhere)


def test_a_run_goes_before_the_cluster_that_kubectl_knows(home: Path) -> None:
    state = home / "runs/train"
    state.mkdir(parents=True)
    database(state).touch()

    assert not target.is_cluster(parsed(), "train-1", environ={"HOME": str(home)}, runs=home / "runs")


def test_in_a_pod_its_own_cluster_is_meant() -> None:
    assert target.is_cluster(parsed(), "train-1", environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_a_run_and_a_cluster_at_the_same_time_are_refused(tmp_path: Path) -> None:
    async def open_both() -> None:
        async with target.open_target(parsed("--name", "train", "--kubeconfig", str(tmp_path / "none"))):
            pass

    with pytest.raises(UserError, match="--name and --state are of a run on this machine"):
        asyncio.run(open_both())


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def open_it() -> None:
        async with target.open_target(parsed("--kubeconfig", str(tmp_path / "none"))):
            pass

    with pytest.raises(UserError, match="none: there is no such file"):
        asyncio.run(open_it())
