"""Questions to an API server about somebody's rights. It answers and stores nothing."""

from __future__ import annotations

from healthd.core.api.meta import ObjectMeta, Slim


class ResourceAttributes(Slim, frozen=True, kw_only=True):
    """What is to be done to what. An empty *namespace* or *name* stands for all of them."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


class AccessReviewSpec(Slim, frozen=True, kw_only=True):
    """Who is meant. Groups are not looked up: those that the account would have are to be named."""

    user: str
    groups: list[str] = []
    resource_attributes: ResourceAttributes


class AccessReviewStatus(Slim, frozen=True, kw_only=True):
    """The answer; *allowed* is None where there is none."""

    allowed: bool | None = None


class AccessReview(Slim, frozen=True, kw_only=True):
    """May this account do that? The answer is the object that its creation returns."""

    metadata: ObjectMeta
    spec: AccessReviewSpec
    status: AccessReviewStatus = AccessReviewStatus()


class SubjectAccessReview(AccessReview, frozen=True, kw_only=True):
    """Asked about the cluster."""


class LocalSubjectAccessReview(AccessReview, frozen=True, kw_only=True):
    """Asked about one namespace: who administers that may ask, without a right on the cluster."""
