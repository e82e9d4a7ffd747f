"""Who is alerted to what: the alert services, what each of them gets, and the teams."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from healthd.core.api.incidents import MOST_SINKS, Severity
from healthd.core.config.base import Policy, span


class SinkKind(StrEnum):
    """The alert services that healthd can send to."""

    ALERTMANAGER = "alertmanager"
    PAGERDUTY = "pagerduty"
    JSM = "jsm"
    SLACK = "slack"
    SLACK_WEBHOOK = "slack-webhook"
    INCIDENT_IO = "incident-io"
    TEAMS = "teams"
    FEISHU = "feishu"
    DINGTALK = "dingtalk"
    WECOM = "wecom"
    WEBHOOK = "webhook"
    APPRISE = "apprise"


NEEDS: dict[SinkKind, tuple[str, ...]] = {
    SinkKind.ALERTMANAGER: ("urls",),
    SinkKind.PAGERDUTY: ("token_file",),
    SinkKind.JSM: ("token_file",),
    SinkKind.SLACK: ("token_file", "channel"),
    SinkKind.SLACK_WEBHOOK: ("url_file",),
    SinkKind.INCIDENT_IO: ("urls", "token_file"),
    SinkKind.TEAMS: ("url_file",),
    SinkKind.FEISHU: ("url_file",),
    SinkKind.DINGTALK: ("url_file",),
    SinkKind.WECOM: ("url_file",),
    SinkKind.WEBHOOK: (),
    SinkKind.APPRISE: ("url_file",),
}
"""The keys that a sink of each kind cannot do without. A webhook needs `urls` or `url_file`."""
_FILES = ("url_file", "token_file", "secret_file", "ca_file")


class SinkPolicy(Policy, frozen=True, kw_only=True):
    """One alert service, and which incidents it gets. Credentials are only ever read from files."""

    name: Annotated[
        str,
        Meta(
            description="Its name in metrics, in the log and in `healthd alerts list`. Another name is another "
            "service: open incidents are sent to it anew.",
            pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
            extra={"shape": "up to 63 lower-case letters, digits and inner hyphens"},
        ),
    ] = ""
    kind: Annotated[SinkKind, Meta(description="Which service it is.")] = SinkKind.WEBHOOK
    urls: Annotated[
        tuple[str, ...],
        Meta(
            description="Where it is, where the address is no secret: every replica of an Alertmanager, or one "
            "address. `https://` alone, unless `insecure` is set."
        ),
    ] = ()
    url_file: Annotated[
        str, Meta(description="A file with the address, where the address is a secret (incoming webhooks).")
    ] = ""
    token_file: Annotated[
        str,
        Meta(description="A file with the token, the routing key or the API key. It is read again when it changes."),
    ] = ""
    secret_file: Annotated[str, Meta(description="A file with the secret that messages are signed with.")] = ""
    ca_file: Annotated[
        str,
        Meta(
            description="A file with the certificates (PEM) that the server's certificate is checked against. Empty, "
            "the default: those of the system."
        ),
    ] = ""
    channel: Annotated[
        str, Meta(description="The channel, where the service has several. For Slack best its ID, such as `C0123456`.")
    ] = ""
    severities: Annotated[
        tuple[Severity, ...],
        Meta(
            description="What it gets: `page` is what a person must act on now, `notice` what healthd handles itself. "
            "A service that has an incident gets all later changes of it, whatever its severity becomes."
        ),
    ] = (Severity.PAGE, Severity.NOTICE)
    namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="Only incidents of gangs in these namespaces, with `*` for any text. Empty, the default: all "
            "incidents, also those of nodes and of healthd itself, which have no namespace."
        ),
    ] = ()
    labels: Annotated[
        tuple[str, ...],
        Meta(description="Only incidents that have all of these labels, such as `cause=nodes` or `domain=rack-7`."),
    ] = ()
    rate: Annotated[
        int,
        Meta(
            description="Messages a minute at most; what is more goes into one digest. 0, the default, is what the "
            "service itself allows.",
            ge=0,
        ),
    ] = 0
    insecure: Annotated[bool, Meta(description="Whether `http://` is allowed: for a service in the same cluster.")] = (
        False
    )

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("each of alerts.sinks needs a name")
        if not self.severities:
            raise ValueError(f"{self.name}: severities is empty, so it would get nothing; leave the sink out instead")
        if bad := [label for label in self.labels if not all(label.partition("="))]:
            raise ValueError(f"{self.name}: labels: {bad[0]!r} is not of the form name=value")
        self._check_kind()
        self._check_addresses()

    def _check_kind(self) -> None:
        """Raises ValueError when a key is missing that the kind needs."""
        if missing := [key for key in NEEDS[self.kind] if not getattr(self, key)]:
            raise ValueError(f"{self.name}: a sink of kind {self.kind} needs {' and '.join(missing)}")
        if self.kind is SinkKind.WEBHOOK and not (self.urls or self.url_file):
            raise ValueError(f"{self.name}: a sink of kind webhook needs urls or url_file")
        if self.kind is SinkKind.APPRISE and Severity.PAGE in self.severities:
            raise ValueError(f"{self.name}: apprise is for notices, not for pages: set severities to [notice]")

    def _check_addresses(self) -> None:
        """Raises ValueError for an address that cannot be right."""
        if self.urls and self.url_file:
            raise ValueError(f"{self.name}: urls and url_file are both set; the address is in one of them")
        if len(self.urls) > 1 and self.kind is not SinkKind.ALERTMANAGER:
            raise ValueError(f"{self.name}: urls has {len(self.urls)} addresses; only an alertmanager has several")
        allowed = ("https://", "http://") if self.insecure else ("https://",)
        if any(not url.startswith(allowed) for url in self.urls):
            hint = "" if self.insecure else "; http:// needs `insecure: true`"
            raise ValueError(f"{self.name}: an address in urls begins with {' or '.join(allowed)}{hint}")
        if relative := [key for key in _FILES if (path := getattr(self, key)) and not path.startswith("/")]:
            raise ValueError(f"{self.name}: {relative[0]} must be an absolute path")


class TeamPolicy(Policy, frozen=True, kw_only=True):
    """Whose gangs are in which namespaces."""

    name: Annotated[str, Meta(description="The name of the team in messages.", min_length=1, max_length=63)] = "-"
    namespaces: Annotated[
        tuple[str, ...], Meta(description="Its namespaces, with `*` for any text. The first team that fits counts.")
    ] = ()


class AlertsPolicy(Policy, frozen=True, kw_only=True):
    """Who is alerted to what. Without `sinks` there are no incidents. docs/monitoring/alerting.md has examples."""

    cluster: Annotated[
        str,
        Meta(
            description="The name of this cluster: the beginning of each key, a label, and in the text. Two clusters "
            "that alert to one service need names that differ. Empty, the default: the uid of the namespace "
            "`kube-system`; for `healthd run`, the name of the host. An incident keeps the name under which it was "
            "opened.",
            pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$",
            extra={"shape": "up to 63 letters, digits, dots, hyphens and underscores"},
        ),
    ] = ""
    sinks: Annotated[
        tuple[SinkPolicy, ...],
        Meta(
            description="The alert services. The first to take is an Alertmanager: it routes, silences and escalates."
        ),
    ] = ()
    teams: Annotated[tuple[TeamPolicy, ...], Meta(description="The team of each namespace, for messages.")] = ()
    default_team: Annotated[
        str, Meta(description="The team of nodes, of healthd itself, and of namespaces that no team names.")
    ] = ""
    base_url: Annotated[
        str,
        Meta(
            description="Where links in messages lead: runbooks are at `<base_url>/<runbook>`. Empty, the default: "
            "messages have no link.",
            pattern=r"^(https?://[^\s]+)?$",
            extra={"shape": "an address with http:// or https://"},
        ),
    ] = ""
    notice_after: Annotated[
        timedelta,
        span(
            "What is not for a person to act on is sent only when it lasts so long: by then it is known which faults "
            "belong together. Pages do not wait."
        ),
    ] = timedelta(seconds=10)
    window: Annotated[
        timedelta,
        span(
            "Troubles with one cause that begin within so much time are one incident: one page for forty nodes behind "
            "one switch, with a list. What begins later is a new page.",
            at_least=timedelta(seconds=1),
        ),
    ] = timedelta(minutes=5)
    update_after: Annotated[
        timedelta,
        span(
            "Between two messages about one incident that change nothing about what a person must do. The first one, "
            "a change of the severity and the end are sent at once."
        ),
    ] = timedelta(seconds=30)
    node_out_after: Annotated[
        timedelta | None,
        span(
            "A node that is in quarantine for longer is a page: its repair is overdue. `null`: never.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(days=3)
    blind_share: Annotated[
        float,
        Meta(
            description="When agents are missing or probes are blind on more than this share of the nodes with "
            "accelerators, and on three at least, that is a page; below it is a notice.",
            gt=0,
            le=1,
        ),
    ] = 0.2
    tries: Annotated[
        int,
        Meta(
            description="Attempts to send one message after which it is given up: a dead letter, which is a metric, an "
            "Event and in `healthd alerts list`.",
            ge=1,
        ),
    ] = 1000
    give_up_after: Annotated[
        timedelta,
        span(
            "A message that could not be sent for so long is given up, too.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(hours=24)
    keep_for: Annotated[
        timedelta,
        span(
            "How long incidents that were resolved are kept for people to read. At most a thousand are.",
            at_least=timedelta(hours=1),
        ),
    ] = timedelta(days=7)

    def __post_init__(self) -> None:
        names = [sink.name for sink in self.sinks]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"sinks has more than one sink named {', '.join(twice)}")
        if len(names) > MOST_SINKS:
            raise ValueError(f"sinks has {len(names)} sinks; {MOST_SINKS} are the most")
        pagers = [sink for sink in self.sinks if Severity.PAGE in sink.severities]
        if pagers and all(sink.namespaces or sink.labels for sink in pagers):
            raise ValueError(
                "every sink that takes pages has namespaces or labels, so pages about nodes, about gangs of several "
                "namespaces and about healthd itself would go nowhere; leave both out of one of them"
            )
