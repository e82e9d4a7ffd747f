"""On-call: what needs a person now, whether messages get through, and whether healthd itself works."""

from __future__ import annotations

from tests.grafana.dashboards.model import Column, Dashboard, Row
from tests.grafana.dashboards.panels import (
    BAD_FROM_ONE,
    NOTICE_FROM_ONE,
    SEVERITY_COLORS,
    bars,
    lines,
    stat,
    table,
    timeline,
)
from tests.grafana.dashboards.promql import counted, events

_CONTROLLER, _AGENT = 'job="healthd-controller"', 'job="healthd-agent"'
_FIRING = 'alertname=~"Healthd.+",alertname!="HealthdWatchdog",alertstate="firing"'
_SILENT = "time() - healthd_informer_last_heard_timestamp_seconds"

NOW = Row(
    title="Now",
    panels=[
        stat(
            "Incidents that page",
            "Open incidents for which a person must act. healthd alerts list names each, with what was done and what "
            "is left to do.",
            'sum(healthd_incidents_open{severity="page"}) or vector(0)',
            thresholds=BAD_FROM_ONE,
            loud=True,
        ),
        stat(
            "Incidents to notice",
            "Open incidents that can wait for working hours.",
            'sum(healthd_incidents_open{severity="notice"}) or vector(0)',
            thresholds=NOTICE_FROM_ONE,
        ),
        stat(
            "Alerts of Prometheus",
            "healthd's alert rules that fire, the dead man's switch left out. The list is below.",
            f"count(ALERTS{{{_FIRING}}}) or vector(0)",
            thresholds=NOTICE_FROM_ONE,
        ),
        stat(
            "Dead man's switch",
            "HealthdWatchdog always fires; the heartbeat service pages when it stops. Not firing: Prometheus does not "
            "evaluate the rules, and no alert would reach you.",
            'count(ALERTS{alertname="HealthdWatchdog",alertstate="firing"}) or vector(0)',
            names={0: ("NOT FIRING", "red"), 1: ("fires", "green")},
            thresholds=((None, "red"), (1, "green")),
            loud=True,
            runbooks=["HealthdWatchdog"],
        ),
        stat(
            "Leading controllers",
            "Exactly one must lead. 0: no gang is recovered.",
            "sum(healthd_leading)",
            thresholds=((None, "red"), (1, "green")),
            when_empty="no controller answers",
            runbooks=["HealthdNoLeader", "HealthdControllerAbsent"],
        ),
        stat(
            "Agents that answer",
            "The share of agents that Prometheus reaches. healthd does not see hardware faults on the other nodes.",
            f"avg(up{{{_AGENT}}})",
            unit="percentunit",
            decimals=1,
            thresholds=((None, "red"), (0.8, "orange"), (1, "green")),
            when_empty="no agent is scraped",
            runbooks=["HealthdManyAgentsDown", "HealthdAgentDown"],
        ),
    ],
)

INCIDENTS = Row(
    title="What needs a person",
    panels=[
        table(
            "Alerts that fire",
            "Each has a page that says what to look at and what to do: follow the link of its name.",
            [
                Column(source="alertname", title="Alert", link="${runbooks}/${__data.fields.Alert}.md"),
                Column(source="severity", title="Severity"),
                Column(source="namespace", title="Namespace"),
                Column(source="gang", title="Gang"),
                Column(source="node", title="Node"),
            ],
            f"max by (alertname, severity, namespace, gang, node) (ALERTS{{{_FIRING}}})",
            when_empty="no alert fires",
        ),
        timeline(
            "When alerts fired",
            "A band while an alert fires. Several that begin together have one cause: begin with the one that pages.",
            (f"max by (alertname) (ALERTS{{{_FIRING}}})", "{{alertname}}"),
            width=12,
            names={1: ("fires", "red")},
            when_empty="no alert fired in this time",
        ),
        lines(
            "Open incidents",
            "By severity. Pages that stay open for hours wait for a person or for a part.",
            ("sum by (severity) (healthd_incidents_open)", "{{severity}}"),
            series=SEVERITY_COLORS,
            stairs=True,
            decimals=0,
        ),
        table(
            "Gangs on hold",
            "Gangs that stand still and wait for a person, the longest first.",
            [
                Column(source="namespace", title="Namespace"),
                Column(source="gang", title="Gang"),
                Column(source="reason", title="Waits for"),
                Column(source="A", title="On hold for", unit="s"),
            ],
            "sort_desc(time() - max by (namespace, gang, reason) (healthd_gang_held_since_timestamp_seconds))",
            runbooks=["HealthdGangHeld"],
            when_empty="no gang is on hold",
        ),
    ],
)

DELIVERIES = Row(
    title="Deliveries to alert services",
    panels=[
        bars(
            "Messages by answer",
            "accepted and delivered are good. retry: the service is away or limits us, healthd goes on trying. "
            "refused: it will never take the message; correct the configuration. unknown: no proof either way.",
            (events("healthd_alert_messages_total", "sink, answer"), "{{sink}}: {{answer}}"),
            width=8,
        ),
        lines(
            "Oldest message that waits",
            "Seconds when all is well. A line that climbs: the service is away, and on-call hears nothing from it.",
            ("max by (sink) (healthd_alert_oldest_waiting_seconds)", "{{sink}}"),
            width=8,
            unit="s",
            thresholds=((None, "green"), (300, "red")),
        ),
        stat(
            "Waiting messages",
            "Incidents of which a message waits to be sent, by alert service.",
            ("max by (sink) (healthd_alert_waiting)", "{{sink}}"),
            height=8,
            thresholds=NOTICE_FROM_ONE,
        ),
        stat(
            "Given up",
            "Messages that no service took, in the shown time. healthd alerts list names them: tell the person "
            "yourself.",
            (counted("healthd_alert_dead_letters_total", "sink"), "{{sink}}"),
            height=8,
            decimals=0,
            thresholds=BAD_FROM_ONE,
        ),
    ],
)

SIGHT = Row(
    title="Where healthd is blind",
    panels=[
        table(
            "Blind sources",
            "Sources that should report on a node and do not. The node stays in service and its verdict is unknown. "
            "Many nodes at once: a driver, a mount or a right was changed.",
            [
                Column(source="node", title="Node", link="/d/healthd-node?var-node=${__data.fields.Node}"),
                Column(source="source", title="Source"),
            ],
            "max by (node, source) (healthd_source_blind)",
            width=8,
            runbooks=["HealthdNodeBlind", "HealthdManyNodesBlind"],
            when_empty="every source reports",
        ),
        lines(
            "Nodes that are blind",
            "By source. A step up of many nodes is a change, not broken hardware.",
            ("count by (source) (max by (node, source) (healthd_source_blind))", "{{source}}"),
            width=8,
            stairs=True,
            decimals=0,
            when_empty="every source reported",
            runbooks=["HealthdManyNodesBlind"],
        ),
        lines(
            "Agents that do not answer",
            "Agents that Prometheus does not reach, and nodes whose agent does not report.",
            (f"count(up{{{_AGENT}}} == 0) or vector(0)", "not scraped"),
            ("max(healthd_nodes_without_agent)", "without a report"),
            width=8,
            stairs=True,
            decimals=0,
            runbooks=["HealthdManyAgentsDown", "HealthdAgentMissing"],
        ),
    ],
)

ITSELF = Row(
    title="healthd itself",
    panels=[
        timeline(
            "Controllers",
            "Which replica leads. A change now and then is an update; many are an API server that answers too slowly.",
            (f"max by (instance) (healthd_leading{{{_CONTROLLER}}})", "{{instance}}"),
            width=12,
            height=5,
            names={0: ("stands by", "blue"), 1: ("leads", "green")},
            runbooks=["HealthdControllerReplicaDown"],
        ),
        lines(
            "Since the API server was last heard",
            "By watch of the leading controller. At 180 s healthd makes no decision any more.",
            (
                f"max by (kind) ({_SILENT} and on (instance) healthd_leading == 1)",
                "{{kind}}",
            ),
            unit="s",
            height=5,
            thresholds=((None, "green"), (180, "red")),
            runbooks=["HealthdCacheStale"],
        ),
        lines(
            "Since each loop last succeeded",
            "controller: recoveries. alerts: messages. fabric: rails are compared. precheck: checkpoints are checked. "
            "A line that climbs: read the log of the leading controller.",
            (
                f"time() - max by (loop) (healthd_loop_last_success_timestamp_seconds{{{_CONTROLLER}}})",
                "{{loop}}",
            ),
            width=8,
            unit="s",
            runbooks=["HealthdControllerLoopStopped", "HealthdSideLoopStopped"],
        ),
        lines(
            "Errors",
            "Requests to the API server that failed, objects that cannot be read, and Events that were dropped, each a "
            "minute. The logs name them.",
            ("60 * sum by (error) (rate(healthd_api_errors_total[$__rate_interval]))", "request: {{error}}"),
            ("60 * sum by (where) (rate(healthd_object_errors_total[$__rate_interval]))", "object: {{where}}"),
            ("60 * sum(rate(healthd_events_dropped_total[$__rate_interval]))", "Events dropped"),
            width=8,
            runbooks=["HealthdObjectErrors", "HealthdEventsDropped"],
        ),
        lines(
            "Memory",
            "Of the controllers, and of the largest agent. A line that climbs for days is a leak: report it.",
            (f"max by (instance) (process_resident_memory_bytes{{{_CONTROLLER}}})", "{{instance}}"),
            (f"max(process_resident_memory_bytes{{{_AGENT}}})", "largest agent"),
            width=8,
            unit="bytes",
        ),
    ],
)

DASHBOARD = Dashboard(
    uid="healthd-on-call",
    title="healthd / On-call",
    meaning="What needs a person now, whether messages get through, and whether healthd itself works.",
    refresh="30s",
    rows=[NOW, INCIDENTS, DELIVERIES, SIGHT, ITSELF],
)
