"""The live page: where it is served, and to whom."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from healthd.core.config.base import Policy


class WebAccess(StrEnum):
    """Who may see the page."""

    LOCAL = "local"
    """Everyone who reaches an address of this machine alone, such as by `kubectl port-forward`: everything."""
    TOKEN = "token"
    """Who has a token of the cluster: what its account may read."""
    PROXY = "proxy"
    """Whom the site's proxy names: what that account may read."""


_HEADER = r"^[A-Za-z][A-Za-z0-9-]{0,62}$"


class WebPolicy(Policy, frozen=True, kw_only=True):
    """The live page of the controller and of `healthd run`. It is read-only. docs/page.md has examples."""

    address: Annotated[
        str,
        Meta(
            description="Where the page is served, `host:port`. Empty, the default: nowhere. The manifests name "
            "`127.0.0.1:9402`, which only `kubectl port-forward` reaches.",
        ),
    ] = ""
    access: Annotated[
        WebAccess,
        Meta(
            description="Who may see it. `local`: who reaches it, and sees everything; the address must be of this "
            "machine alone. `token`: who has a token of the cluster; the API server says by TokenReview whose it is, "
            "and by SubjectAccessReview which namespaces that account may read. `proxy`: a proxy of the site in front "
            "authenticates, and names the user in `user_header`; the namespaces follow as with `token`.",
        ),
    ] = WebAccess.LOCAL
    hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Names under which browsers reach the page, beside `localhost` and the loopback addresses, "
            "such as `healthd.example.com`. Another name is refused, so that no page of another site can read this "
            "one by letting its own name point here.",
        ),
    ] = ()
    user_header: Annotated[
        str,
        Meta(
            description="With `proxy`: the header that has the name of the user.",
            pattern=_HEADER,
            extra={"shape": "the name of a header"},
        ),
    ] = "X-Forwarded-User"
    groups_header: Annotated[
        str,
        Meta(
            description="With `proxy`: the header that has the user's groups, separated by commas.",
            pattern=_HEADER,
            extra={"shape": "the name of a header"},
        ),
    ] = "X-Forwarded-Groups"
    proxy_secret_file: Annotated[
        str,
        Meta(
            description="With `proxy`: a file with a secret that the proxy sends in `X-Healthd-Proxy-Secret`, so that "
            "nothing else can name a user. It may be left out only where the address is of this machine alone, as "
            "for a proxy in the same pod.",
        ),
    ] = ""
