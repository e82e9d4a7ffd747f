"""`Incident`: what people are alerted to, and what each alert service has accepted of it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from enum import StrEnum

from healthd.core.api.meta import ObjectMeta, Slim
from healthd.core.untrusted import Moment

LONGEST_KEY = 255
"""Characters of a key. PagerDuty's limit of `dedup_key` is the smallest of all services."""
LONGEST_TITLE = 200
LONGEST_TEXT = 4096
"""Characters of each text of an incident, so that the message fits every service."""
LONGEST_ERROR = 500
"""Characters of what a service answers that are kept."""
MOST_NODES = 1000
"""Nodes that an incident lists; its text has the number of all."""
MOST_SINKS = 50
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9./_-]+")


class Severity(StrEnum):
    """Whether a person must act."""

    PAGE = "page"
    """A person must act now."""
    NOTICE = "notice"
    """healthd has handled it, or is handling it."""


class Incident(Slim, frozen=True, kw_only=True):
    """An incident as all alert services get it. Times are in UTC."""

    key: str
    """Identity in its cluster, at most `LONGEST_KEY` characters of `[A-Za-z0-9./_-]`, for example
    `recovery/team-a/llama-3`."""
    cluster: str = ""
    """The name of the cluster when the incident was opened. Empty where it had none."""
    revision: int = 1
    """Grows with each change that a reader should see. Services get the revisions of one incident in order."""
    severity: Severity
    """Whether a person must act: `page` or `notice`. Of a resolved incident: how it was last."""
    title: str
    """One line: what is wrong with what."""
    opened: Moment
    """When it began."""
    updated: Moment
    """When this revision was made."""
    resolved: Moment | None = None
    """When it ended; absent while it is open."""
    namespace: str = ""
    """The namespace of the gang. Empty for an incident that is about several, or about none."""
    gang: str = ""
    """For example `job/llama`. Empty for an incident of a node or of healthd itself."""
    team: str = ""
    """The team of the namespace, by `alerts.teams`."""
    nodes: tuple[str, ...] = ()
    """All nodes that are concerned, sorted."""
    happened: str = ""
    """What happened, in sentences."""
    did: str = ""
    """What healthd did."""
    todo: str = ""
    """What is left for a person. Empty when there is nothing to do."""
    command: str = ""
    """The command that says why, for example `healthd explain job/llama -n team-a`."""
    runbook: str = ""
    """Name of the runbook page, for example `recovery-held`."""
    labels: Mapping[str, str] = {}
    """Further labels for routing, such as `domain` or `cause`."""

    @property
    def dedup_key(self) -> str:
        """Identity at alert services, which may serve several clusters: `prod-eu/recovery/team-a/llama-3`."""
        return key_of(self.cluster, self.key) if self.cluster else self.key


def key_of(*parts: str) -> str:
    """The key of an incident, of at most `LONGEST_KEY` characters. Parts that differ give keys that differ."""
    key = "/".join(parts)
    clean = _NOT_IN_KEYS.sub("-", key)
    if clean == key and len(key) <= LONGEST_KEY:
        return key
    check = f"-{zlib.crc32(key.encode()):08x}"
    return f"{clean[: LONGEST_KEY - len(check)]}{check}"


class Delivery(Slim, frozen=True, kw_only=True):
    """What one alert service has of an incident."""

    revision: int = 0
    """The newest revision that the service has accepted; 0: none."""
    severity: Severity | None = None
    """The severity of that revision."""
    answer: str = ""
    """What the service's answer proves: `accepted`, `delivered` or `unknown`."""
    at: Moment | None = None
    """When it answered so."""
    thread: str = ""
    """The service's own id of its message, where it has one."""
    attempts: int = 0
    """Attempts in a row that failed since then."""
    since: Moment | None = None
    """When the first of them failed."""
    next_try: Moment | None = None
    """Not before then is it tried again."""
    error: str = ""
    """Why the last attempt failed."""
    dead: int = 0
    """The newest revision that healthd has given up to send; 0: none."""


class IncidentStatus(Slim, frozen=True, kw_only=True):
    """Which alert service has accepted what, and which later problems join the incident."""

    shared: str = ""
    """What its problems have in common, such as `nodes`; empty: it is about one alone."""
    scope: str = ""
    """Only problems of this namespace join; empty: of any."""
    began: Moment | None = None
    """When the first of its problems began: those that begin within `alerts.window` of it join."""
    deliveries: dict[str, Delivery] = {}
    """By the name of the service in `alerts.sinks`."""


class IncidentRecord(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, in healthd's own namespace: one incident, and what became of its messages."""

    metadata: ObjectMeta
    spec: Incident
    """The incident, as it is sent."""
    status: IncidentStatus = IncidentStatus()
    """Who has accepted it."""
