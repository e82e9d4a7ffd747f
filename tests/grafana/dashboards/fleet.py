"""Fleet: is the hardware of the cluster good, and is there room for the next fault."""

from __future__ import annotations

from tests.grafana.dashboards.model import Column, Dashboard, Marker, Row, Variable
from tests.grafana.dashboards.panels import (
    BAD_FROM_ONE,
    GOOD_FROM_95,
    NEUTRAL,
    NOTICE_FROM_ONE,
    VERDICT_COLORS,
    VERDICTS,
    bars,
    heat_map,
    lines,
    ranking,
    stat,
    table,
    timeline,
)
from tests.grafana.dashboards.promql import ettr, events, gpu_time_share, lost_gpu_hours, quantile, verdict_of

NODE_LINK = "/d/healthd-node?var-datasource=${datasource}&var-node=${__data.fields.Node}"
_UNHEALTHY = 'max by (node) (healthd_node_verdict{verdict="unhealthy"})'
_NOT_HEALTHY = 'max by (node) (max_over_time(healthd_node_verdict{verdict!="healthy"}[$__range])) == 1'
_DOMAINS = "max by (node, $domain) (kube_node_labels)"
_FINDINGS = "max by (node, device, rule, severity, action) (healthd_findings)"

NOW = Row(
    title="Now",
    panels=[
        stat(
            "Nodes by verdict",
            "What the agents say of their nodes. Unhealthy: a fault that takes the node out of service. Degraded: it "
            "works, and something is wrong. Unknown: a source that should report is blind. Look at the table of "
            "findings below, then at the node.",
            ("sum by (verdict) (max by (node, verdict) (healthd_node_verdict))", "{{verdict}}"),
            width=8,
            thresholds=NEUTRAL,
            series=VERDICT_COLORS,
            runbooks=["HealthdFindingsRising"],
        ),
        stat(
            "Budget used",
            "Nodes in quarantine, as a share of what healthd may hold in quarantine at once. At 100 % the next bad "
            "node stays in service and its gang is held: repair nodes, or raise quarantine.budget.",
            "max(healthd_quarantined_nodes) / max(healthd_quarantine_budget)",
            unit="percentunit",
            thresholds=((None, "green"), (0.5, "orange"), (1, "red")),
            runbooks=["HealthdBudgetUsedUp"],
            when_empty="no controller leads",
        ),
        stat(
            "Usable spares",
            "Free spare nodes that are fit to take a gang's rank. At 0 the next hardware fault holds its gang: repair "
            "a quarantined node, or label a healthy node as a spare.",
            "max(healthd_spares) - max(healthd_spares_unfit)",
            thresholds=((None, "red"), (1, "orange"), (2, "green")),
            runbooks=["HealthdNoSpare"],
        ),
        stat(
            "Gangs on hold",
            "Recoveries that wait for a spare, the budget, a proof, a checkpoint or the breaker. Such a gang stands "
            "still or runs on a bad node. The dashboard Recoveries says which gang waits for what.",
            "sum(max by (reason) (healthd_recoveries_held))",
            thresholds=BAD_FROM_ONE,
            runbooks=["HealthdGangHeld"],
        ),
        stat(
            "Breaker",
            "Open: too many nodes went bad, or too many restarts began, in a short time. healthd starts no gang until "
            "it closes by itself. Find the common cause: a switch, a store, a driver.",
            ("max by (crowd) (healthd_breaker_open)", "{{crowd}}"),
            names={0: ("closed", "green"), 1: ("OPEN", "red")},
            thresholds=BAD_FROM_ONE,
            runbooks=["HealthdBreakerOpen"],
        ),
    ],
)

OVER_TIME = Row(
    title="Over time",
    panels=[
        lines(
            "Nodes that are not healthy",
            "A step up of many nodes at once is seldom broken hardware: look for what they share. A slow rise of "
            "degraded nodes is work for the repair desk.",
            (
                'sum by (verdict) (max by (node, verdict) (healthd_node_verdict{verdict!="healthy"}))',
                "{{verdict}}",
            ),
            stacked=True,
            decimals=0,
            series=VERDICT_COLORS,
            runbooks=["HealthdFindingsRising", "HealthdManyNodesBlind"],
        ),
        lines(
            "Quarantine and spares",
            "When quarantine reaches the budget, or usable spares reach 0, healthd cannot carry the next fault. "
            "Wanted: the size of the pool, free and in use, that this fleet's own failures and repairs ask for.",
            ("max(healthd_quarantined_nodes)", "in quarantine"),
            ("max(healthd_quarantine_budget)", "budget"),
            ("max(healthd_spares) - max(healthd_spares_unfit)", "usable spares"),
            ("max(healthd_spares_claimed)", "spares in use"),
            ("max(healthd_spares_wanted) > 0", "spares wanted"),
            stairs=True,
            runbooks=["HealthdBudgetUsedUp", "HealthdNoSpare", "HealthdSparesShort", "HealthdSpareCheckFailed"],
        ),
        heat_map(
            "Unhealthy nodes by failure domain",
            "Each cell: how many nodes of a failure domain are unhealthy at that time. A domain that is red while "
            "others are green has a common cause: power, cooling, a switch. Empty: kube-state-metrics does not show "
            "the label that is chosen at the top (docs/monitoring/dashboards.md).",
            (
                f"sum by ($domain) ({_UNHEALTHY} * on (node) group_left ($domain) {_DOMAINS})",
                "{{$domain}}",
            ),
            thresholds=((None, "green"), (1, "orange"), (2, "red")),
            runbooks=["HealthdBreakerOpen"],
        ),
        timeline(
            "Nodes that were not healthy",
            "The verdict of every node that was not healthy at some time that is shown. A node that changes again and "
            "again has an unstable part: check it before it is given back.",
            (f"{verdict_of()} and on (node) ({_NOT_HEALTHY})", "{{node}}"),
            width=12,
            names=VERDICTS,
        ),
    ],
)

GPU_TIME = Row(
    title="GPU time of gangs",
    panels=[
        stat(
            "ETTR",
            "Effective training time ratio of all gangs in the shown time: training that a checkpoint shows, by the "
            "time in which gangs were to train. What is missing was lost: the dashboard Recoveries says to what. "
            "docs/goodput.md compares this with other definitions.",
            ettr(),
            unit="percentunit",
            height=8,
            thresholds=GOOD_FROM_95,
            when_empty="no gang was to train",
        ),
        stat(
            "Goodput",
            "Training that a checkpoint shows, by all GPU time of gangs, that in a queue and of suspended gangs "
            "included. Far below ETTR: look at the queue and the spares, not at faults.",
            gpu_time_share("healthd_productive_gpu_seconds_total"),
            unit="percentunit",
            height=8,
            thresholds=NEUTRAL,
            when_empty="no gang in this time",
        ),
        stat(
            "GPU-hours lost",
            "What faults and starts cost in the shown time: work done again, each phase of recoveries, holds, "
            "start-up. A recovery that has not ended is not in it yet.",
            lost_gpu_hours(),
            height=8,
            decimals=1,
            thresholds=NEUTRAL,
        ),
        lines(
            "What GPU time was used for",
            "Shares over one hour. Lost: by faults and starts. Unverified: no checkpoint shows whether it was "
            "training; set healthd.dev/checkpoint on those gangs. Waiting: queued, or suspended by its user.",
            *(
                (gpu_time_share(f"healthd_{name}_gpu_seconds_total", window="1h"), name)
                for name in ("productive", "lost", "unverified", "waiting")
            ),
            unit="percentunit",
            stacked=True,
            maximum=1,
            series={"productive": "green", "lost": "red", "unverified": "purple", "waiting": "blue"},
        ),
    ],
)

FINDINGS = Row(
    title="Findings",
    panels=[
        table(
            "Top findings",
            "What stands now, most frequent first, with what healthd asks for. docs/findings explains each rule. Many "
            "nodes with one rule have one cause.",
            [
                Column(source="rule", title="Rule"),
                Column(source="severity", title="Severity"),
                Column(source="action", title="Action"),
                Column(source="A", title="Findings"),
                Column(source="B", title="Nodes"),
            ],
            f"topk(15, count by (rule, severity, action) ({_FINDINGS}))",
            "count by (rule, severity, action) (max by (node, rule, severity, action) (healthd_findings))",
            runbooks=["HealthdFindingsRising"],
            when_empty="no finding stands",
        ),
        table(
            "Nodes in quarantine",
            "How long healthd has held each node out of service. A node uses up the budget until it is repaired; "
            "healthd repair NODE gives it back.",
            [
                Column(source="node", title="Node", link=NODE_LINK),
                Column(source="A", title="In quarantine for", unit="s"),
            ],
            "sort_desc(time() - max by (node) (healthd_node_quarantined_since_timestamp_seconds))",
            runbooks=["HealthdNodeQuarantinedLong"],
            when_empty="no node is in quarantine",
        ),
        bars(
            "Findings raised",
            "New findings by rule. Repeats of a finding that stands do not count.",
            (events("healthd_findings_raised_total", "rule"), "{{rule}}"),
            runbooks=["HealthdFindingsRising"],
        ),
        ranking(
            "Nodes with most findings",
            "The nodes to look at first. Few nodes cause most trouble: one that leads here week after week should be "
            "taken out for good.",
            (f"topk(10, count by (node) ({_FINDINGS}))", "{{node}}"),
            thresholds=((None, "yellow"), (3, "red")),
            decimals=0,
            when_empty="no finding stands",
        ),
    ],
)

FABRIC = Row(
    title="Fabric and peers",
    panels=[
        lines(
            "Ports that stand out",
            "Ports whose counters of loss grow far more than those of the same rail on other nodes. One port: its "
            "cable, its module or the switch port. healthd reports it and takes no node out for it.",
            ("max by (rail) (healthd_fabric_outliers)", "rail {{rail}}"),
            width=5,
            stairs=True,
            decimals=0,
        ),
        lines(
            "Nodes in congestion",
            "Nodes that are in the congestion of a rail. Above 0 the rail is congested as a whole: look at its "
            "switches, not at the nodes.",
            ("max by (rail) (healthd_fabric_congested)", "rail {{rail}}"),
            width=5,
            stairs=True,
            decimals=0,
        ),
        lines(
            "Nodes below their peers",
            "Nodes that have had less of a part than nodes of the same kind since their first boot: a GPU, a port, "
            "memory. They stay in service: compare them with their order, and have them repaired.",
            ("max by (part) (healthd_nodes_below_peers)", "{{part}}"),
            width=6,
            stairs=True,
            decimals=0,
            when_empty="every node has what its peers have",
        ),
        stat(
            "Fault to cordon, p99",
            "From the kernel's own time stamp of a fault to the committed cordon, in the shown time. Above a minute "
            "the API server was slow or away.",
            quantile(0.99, "healthd_quarantine_seconds"),
            unit="s",
            height=8,
            thresholds=((None, "green"), (10, "orange"), (60, "red")),
            when_empty="no quarantine in this time",
        ),
        stat(
            "Nodes without an agent",
            "Nodes whose agent never reported, or not for three hours. healthd does not see their faults: let the "
            "DaemonSet run on them.",
            "max(healthd_nodes_without_agent)",
            height=8,
            thresholds=NOTICE_FROM_ONE,
            runbooks=["HealthdAgentMissing"],
        ),
    ],
)

DASHBOARD = Dashboard(
    uid="healthd-fleet",
    title="healthd / Fleet",
    meaning="Is the hardware of the cluster good, and is there room for the next fault.",
    variables=[
        Variable(
            name="domain",
            label="Label of the failure domain",
            kind="textbox",
            query="label_topology_kubernetes_io_zone",
        )
    ],
    markers=[
        Marker(
            name="Quarantine",
            expr="max by (node) (time() - healthd_node_quarantined_since_timestamp_seconds) < 120",
            title="{{node}} is taken out of service",
            color="red",
        )
    ],
    rows=[NOW, OVER_TIME, GPU_TIME, FINDINGS, FABRIC],
)
