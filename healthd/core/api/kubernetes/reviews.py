"""Reviews: the API server says whose a token is, or whether an account has a right, and stores nothing."""

from __future__ import annotations

from healthd.core.api.meta import ObjectMeta, Slim


class ResourceAttributes(Slim, frozen=True, kw_only=True):
    """A verb on a resource. An empty *namespace* or *name* means all of them."""

    verb: str
    resource: str
    subresource: str = ""
    group: str = ""
    namespace: str = ""
    name: str = ""


class TokenReviewSpec(Slim, frozen=True, kw_only=True):
    """The token to check."""

    token: str


class TokenUser(Slim, frozen=True, kw_only=True):
    """The account that a token is of."""

    username: str = ""
    groups: list[str] = []


class TokenReviewStatus(Slim, frozen=True, kw_only=True):
    """Whether the token is valid, and whose it is."""

    authenticated: bool = False
    user: TokenUser = TokenUser()
    error: str = ""


class TokenReview(Slim, frozen=True, kw_only=True):
    """Whose a bearer token is. The answer is in the object that its creation returns."""

    metadata: ObjectMeta
    spec: TokenReviewSpec
    status: TokenReviewStatus = TokenReviewStatus()


class AccessReviewSpec(Slim, frozen=True, kw_only=True):
    """The account. The API server does not look up its groups, so they are given here."""

    user: str
    groups: list[str] = []
    resource_attributes: ResourceAttributes


class AccessReviewStatus(Slim, frozen=True, kw_only=True):
    """The answer; *allowed* is None where there is no answer."""

    allowed: bool | None = None


class AccessReview(Slim, frozen=True, kw_only=True):
    """Whether an account has a right. The answer is in the object that its creation returns."""

    metadata: ObjectMeta
    spec: AccessReviewSpec
    status: AccessReviewStatus = AccessReviewStatus()


class SubjectAccessReview(AccessReview, frozen=True, kw_only=True):
    """A review for the whole cluster."""


class LocalSubjectAccessReview(AccessReview, frozen=True, kw_only=True):
    """A review for one namespace. It needs no right on the cluster."""
