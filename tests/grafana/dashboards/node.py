"""Node: what one machine has, what it had, and whether healthd sees it."""

from __future__ import annotations

from tests.grafana.dashboards.model import Column, Dashboard, Marker, Row, Variable
from tests.grafana.dashboards.panels import (
    BAD_FROM_ONE,
    NOTICE_FROM_ONE,
    VERDICTS,
    bars,
    lines,
    stat,
    table,
    timeline,
)
from tests.grafana.dashboards.promql import events, rate_on_node, verdict_of

_FOUND = 'healthd_findings{node="$node"}'
_DCGM = '{Hostname="$node"}'
_NO_DCGM = "dcgm-exporter is not scraped"

NOW = Row(
    title="Now",
    panels=[
        stat(
            "Verdict",
            "What healthd makes of this node. Unhealthy: a fault takes it out of service. Degraded: it works, and "
            "something is wrong. Unknown: a source is blind. The findings below say why.",
            verdict_of("$node"),
            names=VERDICTS,
            loud=True,
            thresholds=((None, "green"), (1, "purple"), (2, "yellow"), (3, "red")),
            when_empty="its agent does not answer",
            runbooks=["HealthdAgentDown"],
        ),
        stat(
            "In quarantine for",
            "Since when healthd holds the node out of service. Repair it, then say so: healthd repair NODE.",
            'time() - max(healthd_node_quarantined_since_timestamp_seconds{node="$node"})',
            unit="s",
            thresholds=((None, "orange"), (86400, "red")),
            when_empty="in service",
            runbooks=["HealthdNodeQuarantinedLong"],
        ),
        stat(
            "Findings",
            "How many findings stand on this node. The table and the history below name them.",
            f"count(max by (device, rule) ({_FOUND})) or vector(0)",
            thresholds=NOTICE_FROM_ONE,
        ),
        stat(
            "Blind sources",
            "Sources that should report on this node and do not. healthd does not see faults that only they show: make "
            "them readable.",
            'count(healthd_source_blind{node="$node"}) or vector(0)',
            thresholds=NOTICE_FROM_ONE,
            runbooks=["HealthdNodeBlind"],
        ),
        stat(
            "Kernel records lost",
            "Kernel messages that were overwritten before healthd read them, in the shown time. A fault among them was "
            "not seen: find what floods the log.",
            'sum(increase(healthd_kernel_records_lost_total{node="$node"}[$__range]))',
            decimals=0,
            thresholds=NOTICE_FROM_ONE,
            runbooks=["HealthdKernelRecordsLost"],
        ),
        stat(
            "Quarantines refused",
            "Times that healthd called for a quarantine of this node and did not do it: the budget was used up, or "
            "quarantine.cordon is off. Decide whether the node may stay in service.",
            'sum(increase(healthd_quarantine_refused_total{node="$node"}[$__range]))',
            decimals=0,
            thresholds=BAD_FROM_ONE,
            runbooks=["HealthdQuarantineRefused"],
        ),
    ],
)

HISTORY = Row(
    title="History",
    panels=[
        timeline(
            "Verdict",
            "When the node was well. A node that comes back and fails again has a part that a reset does not mend.",
            (verdict_of("$node"), "{{node}}"),
            height=4,
            names=VERDICTS,
            when_empty="no agent has reported",
        ),
        timeline(
            "Findings and XIDs",
            "A band for each finding while it stands, by device and rule. xid-… and sxid-… are the NVIDIA driver's own "
            "errors; docs/findings says what each means and what mends it.",
            (f"max by (device, rule, severity) ({_FOUND})", "{{device}} {{rule}}"),
            names={1: ("stands", "red")},
            when_empty="no finding stood in this time",
        ),
        table(
            "Findings that stand",
            "What is wrong now, and what mends it: reset_gpu, reboot_node, inspect, contact_support.",
            [
                Column(source="device", title="Device"),
                Column(source="rule", title="Rule"),
                Column(source="severity", title="Severity"),
                Column(source="action", title="Action"),
            ],
            f"max by (device, rule, severity, action) ({_FOUND})",
            when_empty="no finding stands",
        ),
        bars(
            "Findings raised",
            "New findings by rule, repeats left out. The XID history of the node.",
            (events("healthd_findings_raised_total", "rule", '{node="$node"}'), "{{rule}}"),
            when_empty="none was raised in this time",
        ),
    ],
)

GPU = Row(
    title="GPUs (dcgm-exporter)",
    panels=[
        lines(
            "Utilisation",
            "One GPU that is idle while the others work: the job left it, or it is lost. All at 100 % with little "
            "power: a hang.",
            (f"max by (gpu) (DCGM_FI_DEV_GPU_UTIL{_DCGM})", "GPU {{gpu}}"),
            width=8,
            unit="percent",
            maximum=100,
            when_empty=_NO_DCGM,
        ),
        lines(
            "Power",
            "A GPU that draws much less than its peers under the same work is throttled or waits.",
            (f"max by (gpu) (DCGM_FI_DEV_POWER_USAGE{_DCGM})", "GPU {{gpu}}"),
            width=8,
            unit="watt",
            when_empty=_NO_DCGM,
        ),
        lines(
            "Temperature",
            "A GPU that is hotter than its peers: airflow, a fan, thermal paste. Limits depend on the model.",
            (f"max by (gpu) (DCGM_FI_DEV_GPU_TEMP{_DCGM})", "GPU {{gpu}}"),
            (f"max by (gpu) (DCGM_FI_DEV_MEMORY_TEMP{_DCGM})", "memory of GPU {{gpu}}"),
            width=8,
            unit="celsius",
            when_empty=_NO_DCGM,
        ),
        timeline(
            "Last XID, as DCGM reports it",
            "The number of the last XID of each GPU, 0 for none. DCGM keeps it until the driver is loaded anew, so an "
            "old one stays here after the repair; healthd's findings above end.",
            (f"max by (gpu) (DCGM_FI_DEV_XID_ERRORS{_DCGM})", "GPU {{gpu}}"),
            width=12,
            names={0: ("none", "green")},
            thresholds=((None, "green"), (1, "red")),
            when_empty=_NO_DCGM,
        ),
        lines(
            "Memory errors and PCIe replays",
            "Remapped rows: memory that was replaced by spare rows; a failed remapping means a new GPU. PCIe replays "
            "that grow: reseat or replace the riser.",
            (
                f"max by (gpu) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{_DCGM})",
                "rows remapped, GPU {{gpu}}",
            ),
            (f"max by (gpu) (DCGM_FI_DEV_ROW_REMAP_FAILURE{_DCGM})", "remapping failed, GPU {{gpu}}"),
            (
                f"sum by (gpu) (increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{_DCGM}[$__rate_interval]))",
                "PCIe replays, GPU {{gpu}}",
            ),
            when_empty=_NO_DCGM,
        ),
    ],
)

NIC = Row(
    title="Network ports (node-exporter)",
    panels=[
        lines(
            "Traffic",
            "Sent and received by each RDMA port. The ports of a training node should look alike: one that carries "
            "less is degraded, or its rail is congested.",
            (rate_on_node("node_infiniband_port_data_transmitted_bytes_total"), "{{device}} sent"),
            (rate_on_node("node_infiniband_port_data_received_bytes_total"), "{{device}} received"),
            width=8,
            unit="Bps",
            when_empty="node-exporter is not scraped",
        ),
        lines(
            "Errors and discards",
            "Errors: the cable, its modules or the switch port. Discards: congestion.",
            (rate_on_node("node_infiniband_port_errors_received_total"), "{{device}} errors"),
            (rate_on_node("node_infiniband_port_discards_transmitted_total"), "{{device}} discards"),
            width=8,
            unit="pps",
            when_empty="node-exporter is not scraped",
        ),
        bars(
            "Link losses",
            "How often a link went down. More than once in a day: replace the cable or its modules.",
            (
                events("node_infiniband_link_downed_total", "device, instance")
                + ' and on (instance) node_uname_info{nodename="$node"}',
                "{{device}}",
            ),
            width=8,
            when_empty="no link went down, or node-exporter is not scraped",
        ),
    ],
)

SIGHT = Row(
    title="What healthd sees",
    panels=[
        timeline(
            "Sources of readings",
            "Whether each source answers. A source that does not answer raises nothing and ends nothing: its readings "
            "are unknown.",
            ('max by (source) (healthd_probe_up{node="$node"})', "{{source}}"),
            ('max(healthd_kernel_log_up{node="$node"})', "kernel log"),
            width=12,
            names={0: ("no answer", "red"), 1: ("answers", "green")},
            runbooks=["HealthdNodeBlind"],
        ),
        lines(
            "Since the agent last got through",
            "Below a minute while all is well. Above five: the agent reads the hardware, and cannot report or cordon.",
            (
                'time() - max by (node) (healthd_loop_last_success_timestamp_seconds{loop="agent",node="$node"})',
                "loop of the agent",
            ),
            (
                'time() - max by (node) (healthd_watch_last_heard_timestamp_seconds{job="healthd-agent",node="$node"})',
                "watch of the node",
            ),
            unit="s",
            thresholds=((None, "green"), (300, "red")),
            runbooks=["HealthdAgentLoopStopped"],
        ),
    ],
)

DASHBOARD = Dashboard(
    uid="healthd-node",
    title="healthd / Node",
    meaning="What one machine has, what it had, and whether healthd sees it.",
    variables=[
        Variable(name="node", label="Node", kind="query", query="label_values(healthd_node_verdict, node)"),
    ],
    markers=[
        Marker(
            name="Quarantine",
            expr='max by (node) (time() - healthd_node_quarantined_since_timestamp_seconds{node="$node"}) < 120',
            title="taken out of service",
            color="red",
        )
    ],
    rows=[NOW, HISTORY, GPU, NIC, SIGHT],
)
