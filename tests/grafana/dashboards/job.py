"""Job telemetry: how one gang uses its GPUs, its network and its storage, with its faults and restarts beside it."""

from __future__ import annotations

from tests.grafana.dashboards.model import Column, Dashboard, Marker, Row, Variable
from tests.grafana.dashboards.panels import BAD_FROM_ONE, NEUTRAL, VERDICTS, lines, stat, table, timeline
from tests.grafana.dashboards.promql import gang_nodes, gang_pods, of_gang, on_gang_nodes, verdict_of

_GANG = '{namespace="$namespace",gang="$gang"}'
_NO_DCGM = "dcgm-exporter or kube-state-metrics is not scraped, or no GPU is in use"
_NO_NODE_EXPORTER = "node-exporter or kube-state-metrics is not scraped"
_FINDINGS = "max by (node, device, rule, severity, action) (healthd_findings)"
_MOUNTED = 'kube_pod_spec_volumes_persistentvolumeclaims_info{namespace="$namespace"}'
_CLAIMS = f"max by (namespace, persistentvolumeclaim) ({_MOUNTED} and on (namespace, pod) {gang_pods()})"
_USED, _CAPACITY = (f'kubelet_volume_stats_{each}_bytes{{namespace="$namespace"}}' for each in ("used", "capacity"))
_FULL = f"{_USED} / {_CAPACITY} and on (namespace, persistentvolumeclaim) {_CLAIMS}"
_PHASES = 'kube_pod_status_phase{namespace="$namespace"}'

NOW = Row(
    title="Now",
    panels=[
        stat(
            "Step",
            "The furthest training step that healthd has seen.",
            f"max(healthd_gang_step{_GANG})",
            thresholds=NEUTRAL,
            when_empty="not known",
        ),
        stat(
            "Restarts",
            "How often healthd has started this gang again, 0 until the first time.",
            f"max(healthd_gang_attempt{_GANG})",
            thresholds=NEUTRAL,
            runbooks=["HealthdRestartsWithoutProgress"],
        ),
        stat(
            "On hold for",
            "The recovery of this gang waits: healthd explain GANG says for what. Somebody has to bring it.",
            f"time() - max by (reason) (healthd_gang_held_since_timestamp_seconds{_GANG})",
            unit="s",
            thresholds=((None, "orange"), (300, "red")),
            when_empty="not on hold",
            runbooks=["HealthdGangHeld"],
        ),
        stat(
            "Work at risk",
            "What a fault would cost now: the time since the newest checkpoint that would load. Many times the "
            "interval between saves: find out why the gang does not save.",
            f"max(healthd_checkpoint_lost_work_seconds{_GANG})",
            unit="s",
            thresholds=((None, "green"), (1800, "orange"), (7200, "red")),
            when_empty="checkpoints are not checked",
            runbooks=["HealthdCheckpointLate"],
        ),
        stat(
            "Newest checkpoint loads",
            "Whether the newest checkpoint would be resumed from. No: healthd would take an older one, or hold the "
            "gang.",
            f"max(healthd_checkpoint_valid{_GANG})",
            names={0: ("no", "red"), 1: ("yes", "green")},
            thresholds=((None, "red"), (1, "green")),
            when_empty="not checked",
            runbooks=["HealthdCheckpointRefused", "HealthdNothingToResumeFrom"],
        ),
        stat(
            "GPUs in use",
            "GPUs that dcgm-exporter sees pods of this gang on.",
            f"count({of_gang('DCGM_FI_DEV_GPU_UTIL')})",
            thresholds=NEUTRAL,
            when_empty="none",
        ),
    ],
)

BESIDE = Row(
    title="Faults beside the work",
    panels=[
        lines(
            "Step",
            "A flat line while pods run is a hang; a fall after a restart is work that is done again. Orange marks on "
            "all panels are restarts by healthd, red marks are quarantines.",
            (f"max by (gang) (healthd_gang_step{_GANG})", "step"),
            width=8,
        ),
        lines(
            "Pods by phase",
            "All members should run at once. Pending for long: no node is free. Failed: look at the logs of the job.",
            (
                f"sum by (phase) ({_PHASES} and on (namespace, pod) {gang_pods()}) > 0",
                "{{phase}}",
            ),
            width=8,
            stacked=True,
            decimals=0,
            when_empty="kube-state-metrics is not scraped",
        ),
        timeline(
            "Verdicts of its nodes",
            "Of each node while pods of the gang run on it. A gang that goes on running on an unhealthy node waits for "
            "the budget, or for the breaker.",
            (f"{verdict_of()} and on (node) {gang_nodes()}", "{{node}}"),
            width=8,
            names=VERDICTS,
            when_empty="kube-state-metrics is not scraped",
        ),
        table(
            "Findings on its nodes",
            "What stands now on the nodes of this gang. Empty while the job is slow: the cause is not one that healthd "
            "knows, look at the panels below for the rank that differs.",
            [
                Column(source="node", title="Node", link="/d/healthd-node?var-node=${__data.fields.Node}"),
                Column(source="device", title="Device"),
                Column(source="rule", title="Rule"),
                Column(source="severity", title="Severity"),
                Column(source="action", title="Action"),
            ],
            f"{_FINDINGS} and on (node) {gang_nodes()}",
            height=6,
            when_empty="no finding stands on its nodes",
        ),
        stat(
            "Its nodes that are not healthy",
            "Nodes of this gang that are unhealthy, degraded or unknown now.",
            f'count((max by (node) (healthd_node_verdict{{verdict="healthy"}}) == 0) and on (node) {gang_nodes()})'
            " or vector(0)",
            width=4,
            height=6,
            thresholds=BAD_FROM_ONE,
        ),
        lines(
            "Work at risk",
            "It falls at each good checkpoint. A line that only climbs: saves stopped, or are bad.",
            (f"max by (gang) (healthd_checkpoint_lost_work_seconds{_GANG})", "since the last good checkpoint"),
            (f"max by (gang) (healthd_checkpoint_interval_seconds{_GANG})", "usual interval"),
            width=8,
            height=6,
            unit="s",
            when_empty="checkpoints are not checked",
        ),
    ],
)

GPU = Row(
    title="GPUs (dcgm-exporter)",
    panels=[
        lines(
            "Utilisation",
            "By pod. All ranks of a synchronous job move together; the one that differs is the straggler. 100 % with "
            "little power and no tensor activity: a hang in a collective.",
            (f"avg by (pod) ({of_gang('DCGM_FI_DEV_GPU_UTIL')})", "{{pod}}"),
            unit="percent",
            maximum=100,
            when_empty=_NO_DCGM,
        ),
        lines(
            "Tensor cores active",
            "The share of cycles in which tensor cores work: the nearest to useful work that a GPU shows.",
            (f"avg by (pod) ({of_gang('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE')})", "{{pod}}"),
            unit="percentunit",
            maximum=1,
            when_empty=_NO_DCGM,
        ),
        lines(
            "Power",
            "A sum that falls by half while the job runs: ranks wait for each other, for data or for a checkpoint.",
            (f"sum by (pod) ({of_gang('DCGM_FI_DEV_POWER_USAGE')})", "{{pod}}"),
            unit="watt",
            when_empty=_NO_DCGM,
        ),
        lines(
            "GPU memory",
            "Used framebuffer. A line that climbs step by step ends in out of memory.",
            (f"sum by (pod) ({of_gang('DCGM_FI_DEV_FB_USED')})", "{{pod}}"),
            unit="decmbytes",
            when_empty=_NO_DCGM,
        ),
    ],
)

NETWORK = Row(
    title="Network (node-exporter, dcgm-exporter)",
    panels=[
        lines(
            "RDMA traffic",
            "Sent by the ports of the gang's nodes. Zero on all: no collective runs. Less on one: its port or cable.",
            (
                on_gang_nodes("rate(node_infiniband_port_data_transmitted_bytes_total[$__rate_interval])", "node"),
                "{{node}}",
            ),
            width=8,
            unit="Bps",
            when_empty=_NO_NODE_EXPORTER,
        ),
        lines(
            "Errors and discards of ports",
            "Errors: a cable, a module, a switch port. Discards on many nodes: congestion.",
            (
                on_gang_nodes(
                    "(rate(node_infiniband_port_errors_received_total[$__rate_interval])"
                    " + rate(node_infiniband_port_discards_transmitted_total[$__rate_interval]))",
                    "node",
                ),
                "{{node}}",
            ),
            width=8,
            unit="pps",
            when_empty=_NO_NODE_EXPORTER,
        ),
        lines(
            "PCIe",
            "Between GPU and host: data that is loaded, and collectives that do not go over NVLink.",
            (f"sum by (pod) ({of_gang('DCGM_FI_PROF_PCIE_RX_BYTES')})", "{{pod}} received"),
            (f"sum by (pod) ({of_gang('DCGM_FI_PROF_PCIE_TX_BYTES')})", "{{pod}} sent"),
            width=8,
            unit="Bps",
            when_empty=_NO_DCGM,
        ),
    ],
)

STORAGE = Row(
    title="Storage (kubelet, node-exporter)",
    panels=[
        lines(
            "Claims of the gang",
            "How full its volumes are. At 100 % the next checkpoint is torn, and most training programs end.",
            (
                f"max by (persistentvolumeclaim) ({_FULL})",
                "{{persistentvolumeclaim}}",
            ),
            width=8,
            unit="percentunit",
            maximum=1,
            thresholds=((None, "green"), (0.9, "red")),
            when_empty="no claim of the gang is mounted through the kubelet",
            runbooks=["HealthdCheckpointFull"],
        ),
        lines(
            "Read from disks",
            "On the gang's nodes. A rank that waits for data shows low utilisation and low reads.",
            (on_gang_nodes("rate(node_disk_read_bytes_total[$__rate_interval])", "node"), "{{node}}"),
            width=8,
            unit="Bps",
            when_empty=_NO_NODE_EXPORTER,
        ),
        lines(
            "Written to disks",
            "On the gang's nodes: local checkpoints and caches. Writes to a network file system are not here.",
            (on_gang_nodes("rate(node_disk_written_bytes_total[$__rate_interval])", "node"), "{{node}}"),
            width=8,
            unit="Bps",
            when_empty=_NO_NODE_EXPORTER,
        ),
    ],
)

DASHBOARD = Dashboard(
    uid="healthd-job",
    title="healthd / Job telemetry",
    meaning="How one gang uses its GPUs, its network and its storage, with its faults and restarts beside it.",
    variables=[
        Variable(
            name="namespace", label="Namespace", kind="query", query="label_values(healthd_gang_attempt, namespace)"
        ),
        Variable(
            name="gang",
            label="Gang",
            kind="query",
            query='label_values(healthd_gang_attempt{namespace="$namespace"}, gang)',
        ),
    ],
    markers=[
        Marker(
            name="Restart",
            expr=f"changes(max by (gang) (healthd_gang_attempt{_GANG})[2m:30s]) > 0",
            title="{{gang}} is started again",
        ),
        Marker(
            name="Quarantine",
            expr="max by (node) (time() - healthd_node_quarantined_since_timestamp_seconds) < 120",
            title="{{node}} is taken out of service",
            color="red",
        ),
    ],
    rows=[NOW, BESIDE, GPU, NETWORK, STORAGE],
)
