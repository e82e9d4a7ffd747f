"""Which cluster and which namespace a command is about."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from healthd.cli.target import cluster as target_cluster
from healthd.cluster.port import Unusable

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: research
clusters: [{name: here, cluster: {server: "https://here"}}]
users: [{name: me, user: {token: t}}]
contexts:
  - {name: research, context: {cluster: here, user: me, namespace: research}}
  - {name: plain, context: {cluster: here, user: me}}
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return path


def namespace(*options: str) -> str:
    """The one that a command line means."""
    parser = argparse.ArgumentParser()
    target_cluster.add_arguments(parser)
    parser.add_argument("--namespace", default="")
    return target_cluster.namespace(parser.parse_args(options))


@pytest.mark.parametrize(
    ("options", "meant"),
    [([], "research"), (["--context=plain"], "default"), (["--namespace=other"], "other")],
)
def test_the_namespace_is_that_of_the_context_unless_one_is_named(
    kubeconfig: Path, options: list[str], meant: str
) -> None:
    assert namespace(f"--kubeconfig={kubeconfig}", *options) == meant


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="no-such-file"):
        namespace(f"--kubeconfig={tmp_path}/no-such-file")
