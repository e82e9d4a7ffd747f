"""Clusters as healthd's own pods see them: with the tokens that their kubelets would mount."""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from healthd.clock import SystemClock
from healthd.cluster.port import Cluster
from healthd.cluster.remote import Access, Fixed, connect
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

SYSTEM = "healthd-system"


def token_of_agent(control_plane: ControlPlane, node: str) -> str:
    """The token of the agent's pod that the shipped DaemonSet made on *node*."""
    return _token_of_pod(control_plane, "agent", f"&fieldSelector=spec.nodeName={node}")


def token_of_controller(control_plane: ControlPlane) -> str:
    """The token of a pod that the shipped Deployment made."""
    return _token_of_pod(control_plane, "controller", "")


@asynccontextmanager
async def as_holder_of(control_plane: ControlPlane, token: str) -> AsyncIterator[Cluster]:
    """The cluster, as whoever has *token*."""
    tls = ssl.create_default_context(cafile=str(control_plane.authority))
    access = Access(url=control_plane.url, source="a test", authorization=f"Bearer {token}", tls=tls)
    async with connect(Fixed(access), clock=SystemClock(), luck=random.random) as cluster:
        yield cluster


def _token_of_pod(control_plane: ControlPlane, component: str, where: str) -> str:
    pods: list[Json] = []

    def made() -> bool:
        labels = f"?labelSelector=app.kubernetes.io/component={component}"
        pods[:] = control_plane.api.get(f"/api/v1/namespaces/{SYSTEM}/pods{labels}{where}")["items"]
        return bool(pods)

    wait_until(f"a pod of the {component} {where}", made, limit=60)
    meta = pods[0]["metadata"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return control_plane.service_account_token(SYSTEM, f"healthd-{component}", bound_to=bound)
