"""Clusters as healthd's own pods see them: with the tokens that their kubelets would mount."""

from __future__ import annotations

import json
import random
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from healthd.clock import SystemClock
from healthd.cluster.remote import Access, RemoteCluster, connect
from tests.cluster.fakes import FixedConnection
from tests.deploy.manifests import DEPLOY
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

SYSTEM = "healthd-system"

Request = tuple[str, str, Json | list[Json] | None]
"""Method, path and body; a list of operations is a JSON patch, any other patch is merged."""


def token_of_agent(control_plane: ControlPlane, node: str) -> str:
    """The token of the agent's pod that the shipped DaemonSet made on *node*."""
    return _token_of_pod(control_plane, "agent", f"&fieldSelector=spec.nodeName={node}")


def token_of_controller(control_plane: ControlPlane) -> str:
    """The token of a pod that the shipped Deployment made."""
    return _token_of_pod(control_plane, "controller", "")


def bind_controller(control_plane: ControlPlane) -> str:
    """
    The token of the controller's account, with its rights and those of every component, and its policies at work.

    For tests in which nothing else of what is shipped runs.
    """
    control_plane.apply(DEPLOY / "namespace.yaml")
    components = DEPLOY / "components"
    others = ("plain-pods/binding.yaml", "rebuild/binding.yaml", "kueue/policy.yaml", "before-1.36/policy.yaml")
    granted = [*(components / each for each in others), *components.glob("*/rbac.yaml")]
    policies = [DEPLOY / f"admission-{each}.yaml" for each in ("controller", "kinds", "rebuild")]
    for file in (DEPLOY / "rbac.yaml", *granted, *policies):
        control_plane.kubectl("apply", "--server-side", "-n", SYSTEM, "-f", str(file))
    token = control_plane.service_account_token(SYSTEM, "healthd-controller")
    pod = {"metadata": {"name": "any"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    refused: Request = ("POST", "/api/v1/namespaces/kube-system/pods?dryRun=All", pod)
    guards = "ValidatingAdmissionPolicy"
    wait_until("the policies at work", lambda: guards in answer(control_plane, token, refused)[1], limit=30)
    return token


def answer(control_plane: ControlPlane, token: str, request: Request) -> tuple[int, str]:
    """The status and the message of the API server's answer to the user of *token*."""
    method, path, body = request
    patch = "application/json-patch+json" if isinstance(body, list) else "application/merge-patch+json"
    text = json.dumps(body) if body is not None else None
    status, raw = control_plane.api_as(token).raw(
        method, path, text, {"Content-Type": patch if method == "PATCH" else "application/json"}
    )
    return status, raw.decode(errors="replace")


def refuser(message: str) -> str:
    """Who refused a request with this *message*: a policy by its name, RBAC, or what holds kubelets to their nodes."""
    if found := re.search(r"ValidatingAdmissionPolicy '([a-z-]+)'", message):
        return found[1]
    if "no relationship found between node" in message:
        return "Node authorizer"
    rbac = re.search(r'User \\?"[^"]+" cannot |attempting to grant RBAC permissions', message)
    return "RBAC" if rbac else "NodeRestriction"


@asynccontextmanager
async def as_holder_of(control_plane: ControlPlane, token: str) -> AsyncIterator[RemoteCluster]:
    """The cluster, as the user of *token*."""
    tls = ssl.create_default_context(cafile=str(control_plane.authority))
    access = Access(url=control_plane.url, source="a test", authorization=f"Bearer {token}", tls=tls)
    async with connect(FixedConnection(access), clock=SystemClock(), jitter=random.random) as cluster:
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
