"""Which kinds an API server has, and what the caller may do with them: requests and answers. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from healthd.cluster.port import Unavailable
from healthd.core.api import Resource

T = TypeVar("T")

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""Where everybody who is authenticated may ask about his own rights."""


class _Served(msgspec.Struct, frozen=True):
    name: str


class _Discovery(msgspec.Struct, frozen=True):
    resources: list[_Served] = []


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status


def discovery_path(resource: Resource) -> str:
    """Where the API server lists the kinds of its group and version; not found where it has none of them."""
    return "/api/v1" if resource.api_version == "v1" else f"/apis/{resource.api_version}"


def is_listed(resource: Resource, body: bytes) -> bool:
    """Whether the kind is among those in *body*, an answer of `discovery_path`. Raises Unavailable for another body."""
    return any(each.name == resource.plural for each in _decoded(body, _Discovery).resources)


def review_body(resource: Resource, verb: str) -> bytes:
    """The question whether the caller may do *verb*, as `patch` or `patch/status`, with all objects of the kind."""
    group, slash, _ = resource.api_version.partition("/")
    does, _, subresource = verb.partition("/")
    attributes = {"verb": does, "group": group if slash else "", "resource": resource.plural}
    if subresource:
        attributes["subresource"] = subresource
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return msgspec.json.encode(review)


def is_allowed(body: bytes) -> bool:
    """The answer to `review_body`. Raises Unavailable for another body."""
    return _decoded(body, _Review).status.allowed


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"the API server's answer cannot be read: {error}") from error
