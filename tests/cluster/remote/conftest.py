"""A real API server, reached through a proxy that the test can break."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.cluster.remote import ClientLimits, RemoteCluster, connect
from healthd.cluster.remote.kubeconfig import from_kubeconfig
from tests.cluster.remote.proxy import Proxy, proxying
from tests.lab.control_plane import ControlPlane

QUICK = ClientLimits(
    request=timedelta(seconds=5),
    stall_after=timedelta(seconds=5),
    first_retry=timedelta(milliseconds=20),
    last_retry=timedelta(milliseconds=100),
)


@dataclass(frozen=True)
class Road:
    """The way through the proxy."""

    proxy: Proxy
    kubeconfig: Path

    def connect(self, **limits: timedelta) -> AbstractAsyncContextManager[RemoteCluster]:
        """A cluster behind the proxy."""
        return remote(self.kubeconfig, replace(QUICK, **limits))  # type: ignore[arg-type]  # one limit is an int


def remote(kubeconfig: Path, limits: ClientLimits = QUICK) -> AbstractAsyncContextManager[RemoteCluster]:
    """The cluster of a kubeconfig."""
    clock = SystemClock()
    return connect(from_kubeconfig(kubeconfig, clock=clock), clock=clock, jitter=random.random, limits=limits)


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[RemoteCluster]:
    """The cluster by the straight way: what others do to it."""
    async with remote(control_plane.kubeconfig) as straight:
        yield straight


@pytest.fixture
async def road(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Road]:
    """The cluster through a proxy."""
    async with proxying(control_plane.port) as proxy:
        server = f"https://127.0.0.1:{proxy.port}"
        yield Road(proxy, control_plane.write_kubeconfig(tmp_path / "config", control_plane.token, server=server))
