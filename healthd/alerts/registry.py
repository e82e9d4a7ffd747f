"""From the configuration of a sink to the sink."""

from __future__ import annotations

from collections.abc import Mapping

from healthd.alerts.http import LIMITS, Http, Limits, proxy_of_environment
from healthd.alerts.sink import Sink, SinkError
from healthd.alerts.sinks.alertmanager import Alertmanager
from healthd.alerts.sinks.apprise import Apprise, load
from healthd.alerts.sinks.base import HttpSink
from healthd.alerts.sinks.dingtalk import DingTalk
from healthd.alerts.sinks.feishu import Feishu
from healthd.alerts.sinks.incident_io import IncidentIo
from healthd.alerts.sinks.jsm import JiraServiceManagement
from healthd.alerts.sinks.pagerduty import PagerDuty
from healthd.alerts.sinks.slack import Slack, SlackWebhook
from healthd.alerts.sinks.teams import Teams
from healthd.alerts.sinks.webhook import Webhook
from healthd.alerts.sinks.wecom import WeCom
from healthd.clock import Clock
from healthd.core.config.alerts import AlertsPolicy, SinkKind, SinkPolicy

__all__ = ["HTTP_SINKS", "SinkError", "make_sink", "make_sinks"]

HTTP_SINKS: Mapping[SinkKind, type[HttpSink]] = {
    SinkKind.ALERTMANAGER: Alertmanager,
    SinkKind.PAGERDUTY: PagerDuty,
    SinkKind.JSM: JiraServiceManagement,
    SinkKind.SLACK: Slack,
    SinkKind.SLACK_WEBHOOK: SlackWebhook,
    SinkKind.INCIDENT_IO: IncidentIo,
    SinkKind.TEAMS: Teams,
    SinkKind.FEISHU: Feishu,
    SinkKind.DINGTALK: DingTalk,
    SinkKind.WECOM: WeCom,
    SinkKind.WEBHOOK: Webhook,
}
"""Every kind but `apprise`, which has a client of its own."""


def make_sinks(policy: AlertsPolicy, clock: Clock) -> list[Sink]:
    """All sinks of *policy*, in its order. Raises SinkError where the extra of one is missing."""
    return [make_sink(sink, clock, base_url=policy.base_url) for sink in policy.sinks]


def make_sink(config: SinkPolicy, clock: Clock, *, base_url: str = "", limits: Limits = LIMITS) -> Sink:
    """The sink that *config* describes; runbooks are below *base_url*. Raises SinkError where its extra is missing."""
    if config.kind is SinkKind.APPRISE:
        return Apprise(config, load())
    http = Http(
        clock,
        ca_file=config.ca_file,
        insecure_http=config.insecure,
        limits=limits,
        proxy_for=proxy_of_environment,
    )
    return HTTP_SINKS[config.kind](config, http, clock, base_url)
