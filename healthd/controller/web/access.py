"""
Who sees what. The API server says whose a token is and which namespaces an account may read; its answers, refusals too,
are kept for a while, so a viewer costs it a few requests a minute, whatever happens on the page.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError
from healthd.controller.web.exposure import check_exposure
from healthd.core.api import (
    AccessReviewSpec,
    ObjectMeta,
    ResourceAttributes,
    SubjectAccessReview,
    TokenReview,
    TokenReviewSpec,
)
from healthd.core.config import WebAccess, WebPolicy
from healthd.core.report.page.state import EVERYTHING, Scope
from healthd.telemetry.address import AddressError

KEPT_FOR = timedelta(minutes=2)
"""How long an answer of the API server counts. A right that is taken away counts so much longer at most."""
REUSED_FOR = KEPT_FOR / 2
"""How long an answer is used for further requests. So a stream that begins with one lasts for a while."""
MOST_ACCOUNTS = 256
"""Accounts whose rights are kept."""
MOST_NAMESPACES = 500
"""Namespaces that are asked about for one account."""
AT_ONCE = 8
"""Questions to the API server at the same time, for all viewers together."""
LONGEST_TOKEN = 16_384
K = TypeVar("K")
V = TypeVar("V")
SECRET_HEADER = "X-Healthd-Proxy-Secret"

_FLEET_RIGHTS = (("", "nodes"), ("healthd.dev", "nodehealths"))
_GANG_RIGHTS = (("healthd.dev", "recoveries"),)


class Refused(Exception):
    """The request is not answered. *status* is that of HTTP, the message says what to do."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Admission(NamedTuple):
    """What a request may see."""

    scope: Scope
    until: datetime | None = None
    """When the answers behind it are too old, and a stream ends to be asked anew; None: never."""


Headers = Mapping[str, str]
Namespaces = Callable[[], Awaitable[Collection[str]]]
"""Every namespace with something to show. Called for an account that is known, and for no other."""


class Access(Protocol):
    """Decides what a request may see."""

    async def admit(self, headers: Headers, namespaces: Namespaces) -> Admission:
        """What the sender of a request may see of *namespaces* and of the nodes. Raises Refused."""
        ...


class OpenAccess:
    """Everything, for all who reach the address."""

    async def admit(self, headers: Headers, namespaces: Namespaces) -> Admission:  # noqa: ARG002 - the protocol's
        """Everything."""
        return Admission(EVERYTHING)


class KeyAccess:
    """Everything, for who has the key: on a server with several users, all of them reach an address of it."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    async def admit(self, headers: Headers, namespaces: Namespaces) -> Admission:  # noqa: ARG002 - the protocol's
        """Everything. Raises Refused without the key."""
        if not hmac.compare_digest(_bearer(headers).encode(errors="replace"), self._key):
            raise Refused(401, "open the address that healthd printed: it has the key of this run")
        return Admission(EVERYTHING)


class Account(NamedTuple):
    """An account of the cluster."""

    user: str
    groups: tuple[str, ...] = ()


class _Rights(NamedTuple):
    """What the API server said about an account."""

    asked_at: datetime
    namespaces: frozenset[str]
    """Those that it was asked about."""
    scope: Scope


class AccountAccess:
    """What an account may read, as the API server says. *account_of* finds the account of a request."""

    def __init__(self, cluster: Cluster, clock: Clock, account_of: AccountOf) -> None:
        self._cluster = cluster
        self._clock = clock
        self._account_of = account_of
        self._kept: dict[Account, _Rights] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def admit(self, headers: Headers, namespaces: Namespaces) -> Admission:
        """What the account of the request may see. Raises Refused."""
        try:
            account, known_until = await self._account_of.find(headers)
            admission = await self._admission(account, frozenset(sorted(await namespaces())[:MOST_NAMESPACES]))
        except ClusterError as error:
            raise Refused(503, f"the API server cannot be asked what you may see: {error}") from None
        return admission._replace(until=_earlier(admission.until, known_until))

    async def _admission(self, account: Account, namespaces: frozenset[str]) -> Admission:
        now = self._clock.now()
        kept = self._kept.get(account)
        if kept is None or not _is_fresh(kept.asked_at, now) or not namespaces <= kept.namespaces:
            kept = _Rights(now, namespaces, await self._ask(account, namespaces))
            _keep(self._kept, account, kept)
        scope = kept.scope
        if not scope.nodes and scope.namespaces is not None and not scope.namespaces and namespaces:
            raise Refused(403, f"{account.user} may list neither nodes nor the recoveries of any namespace here")
        return Admission(scope, kept.asked_at + KEPT_FOR)

    async def _ask(self, account: Account, namespaces: Iterable[str]) -> Scope:
        nodes, everywhere = await asyncio.gather(
            self._may_all(account, _FLEET_RIGHTS), self._may_all(account, _GANG_RIGHTS)
        )
        if everywhere:
            return Scope(namespaces=None, nodes=nodes)
        names = sorted(namespaces)
        allowed = await asyncio.gather(*(self._may_all(account, _GANG_RIGHTS, name) for name in names))
        return Scope(namespaces=frozenset(n for n, may in zip(names, allowed, strict=True) if may), nodes=nodes)

    async def _may_all(self, account: Account, rights: Iterable[tuple[str, str]], namespace: str = "") -> bool:
        for group, resource in rights:
            what = ResourceAttributes(verb="list", group=group, resource=resource, namespace=namespace)
            spec = AccessReviewSpec(user=account.user, groups=list(account.groups), resource_attributes=what)
            async with self._slots:
                answer = await self._cluster.create(SubjectAccessReview(metadata=ObjectMeta(), spec=spec))
            if not answer.status.allowed:
                return False
        return True


class AccountOf(Protocol):
    """Finds the account of a request."""

    async def find(self, headers: Headers) -> tuple[Account, datetime | None]:
        """The account, and until when this counts; None: for ever. Raises Refused, ClusterError."""
        ...


class TokenAccount:
    """The account of a bearer token, as the API server says."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._kept: dict[bytes, tuple[datetime, Account | None]] = {}
        """By the hash of a token: no token is kept."""

    async def find(self, headers: Headers) -> tuple[Account, datetime | None]:
        """Whose the token is, and until when this counts. Raises Refused, ClusterError."""
        token = _bearer(headers)
        if not token or len(token) > LONGEST_TOKEN:
            raise Refused(401, _HOW)
        key, now = hashlib.sha256(token.encode(errors="replace")).digest(), self._clock.now()
        kept = self._kept.get(key)
        if kept is None or not _is_fresh(kept[0], now):
            kept = (now, await self._ask(token))
            _keep(self._kept, key, kept)
        asked_at, account = kept
        if account is None:
            raise Refused(401, f"the API server does not know this token, or it is too old. {_HOW}")
        return account, asked_at + KEPT_FOR

    async def _ask(self, token: str) -> Account | None:
        async with self._slots:
            review = TokenReview(metadata=ObjectMeta(), spec=TokenReviewSpec(token=token))
            status = (await self._cluster.create(review)).status
        known = status.authenticated and status.user.username
        return Account(status.user.username, tuple(status.user.groups)) if known else None


class ProxyAccount:
    """The account that the site's proxy names. *secret* empty: the proxy alone reaches the address."""

    def __init__(self, policy: WebPolicy, secret: str) -> None:
        self._policy = policy
        self._secret = secret.encode()

    async def find(self, headers: Headers) -> tuple[Account, datetime | None]:
        """The user and the groups in the headers. Raises Refused."""
        given = headers.get(SECRET_HEADER, "").encode(errors="replace")
        if self._secret and not hmac.compare_digest(given, self._secret):
            raise Refused(403, f"the page is behind a proxy, which sends {SECRET_HEADER}: use the proxy's address")
        user = headers.get(self._policy.user_header, "").strip()
        if not user:
            raise Refused(401, f"the proxy in front of this page names no user in {self._policy.user_header}")
        groups = headers.get(self._policy.groups_header, "").split(",")
        return Account(user, tuple(sorted({"system:authenticated", *filter(None, map(str.strip, groups))}))), None


_HOW = "Give a token of the cluster, such as that of `kubectl create token NAME -n NAMESPACE`."


def access_of(policy: WebPolicy, cluster: Cluster, clock: Clock) -> Access:
    """The access that *policy* asks for. Raises AddressError where that would open the page to everyone."""
    check_exposure(policy)
    if policy.access is WebAccess.TOKEN:
        return AccountAccess(cluster, clock, TokenAccount(cluster, clock))
    if policy.access is WebAccess.PROXY:
        return AccountAccess(cluster, clock, ProxyAccount(policy, _secret(policy)))
    return OpenAccess()


def _secret(policy: WebPolicy) -> str:
    """What the proxy sends. Empty: nothing, as for one in the same pod."""
    if not policy.proxy_secret_file:
        return ""
    try:
        secret = Path(policy.proxy_secret_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AddressError(f"web.proxy_secret_file {policy.proxy_secret_file} cannot be read: {error}") from None
    if not secret:
        raise AddressError(f"web.proxy_secret_file {policy.proxy_secret_file} is empty")
    return secret


def _bearer(headers: Headers) -> str:
    kind, _, token = headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _is_fresh(asked_at: datetime, now: datetime) -> bool:
    """Whether an answer is used again. Not where the clock was set back: nothing is known of its age."""
    return timedelta(0) <= now - asked_at < REUSED_FOR


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    """Remember *value*, and forget the oldest where there are too many."""
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > MOST_ACCOUNTS:
        del kept[next(iter(kept))]


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min(filter(None, (one, other)), default=None)
