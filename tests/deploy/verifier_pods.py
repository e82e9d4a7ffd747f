"""Pods that verify checkpoints, as the controller makes them, and others that only look so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from healthd.core.api import OwnerReference, Toleration, to_wire
from healthd.core.checkpoint.verification import Order, verifier_pod
from healthd.core.recovery.gang import RunsAs
from tests.lab.api import Json

Fields = Mapping[str, Any]

IMAGE = "healthd:0.1.0"
"""What the shipped Deployment runs."""


def an_order(**fields: Any) -> Order:
    """What the controller asks for when it is asked for everything."""
    usual: dict[str, Any] = {
        "name": "verifier",
        "namespace": "default",
        "owner": OwnerReference(api_version="healthd.dev/v1alpha1", kind="Recovery", name="r", uid="no-such-uid"),
        "image": IMAGE,
        "claim": "data",
        "folder": "/volume/llama",
        "format": "marked:*/{rank}.done",
        "quick": True,
        "newer_than": 70,
        "runs_as": RunsAs(
            user=1000,
            group=100,
            fs_group=1000,
            groups=(2000,),
            tolerations=(Toleration(key="nvidia.com/gpu", operator="Exists"),),
        ),
        "near": ["n-1"],
        "not_on": ["n-2"],
    }
    return Order(**{**usual, **fields})


def as_ordered(**fields: Any) -> Json:
    """The pod for that order, under a name of its own, and of no owner: a test's owner would not exist."""
    made = to_wire(verifier_pod(an_order(**fields)))
    made["metadata"] = {"generateName": "verifier-", "labels": made["metadata"]["labels"]}
    return made


def a_verifier(
    *, metadata: Fields | None = None, container: Fields | None = None, security: Fields | None = None, **spec: Any
) -> Json:
    """That pod with other fields of its own, of its *container* and their *security*; None takes one away."""
    made = as_ordered()
    made["metadata"] = _with(made["metadata"], metadata)
    made["spec"] = _with(made["spec"], spec)
    if security is not None:
        made["spec"]["securityContext"] = _with(made["spec"]["securityContext"], security)
    made["spec"]["containers"][0] = _with(made["spec"]["containers"][0], container)
    return made


def confined(**fields: Any) -> Json:
    """The security context of its container, with other fields."""
    own: Json = as_ordered()["spec"]["containers"][0]["securityContext"]
    return {"securityContext": _with(own, fields)}


def _with(fields: Json, others: Fields | None) -> Json:
    return {key: value for key, value in {**fields, **(others or {})}.items() if value is not None}
