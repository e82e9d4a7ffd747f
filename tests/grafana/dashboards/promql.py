"""
Expressions that several panels need.

Only the leading controller shows the gauges of the cluster, and every process shows those without labels as 0, so a
gauge is always the `max` over processes and a counter the `sum` of increases.
"""

from __future__ import annotations

EVENTS_EVERY = "5m"
"""The width of a bar that counts events."""
VERDICT = " or ".join(
    f'{code} * (healthd_node_verdict{{verdict="{verdict}"}} == 1)'
    for code, verdict in enumerate(("healthy", "unknown", "degraded", "unhealthy"))
)
"""A number for the verdict of each node, as `panels.VERDICTS` names it."""


def verdict_of(node: str = "") -> str:
    """The verdict of each node, or of *node* alone, as a number."""
    chosen = VERDICT.replace('{verdict="', f'{{node="{node}",verdict="') if node else VERDICT
    return f"max by (node) ({chosen})"


def gang_pods(namespace: str = "$namespace", gang: str = "$gang") -> str:
    """
    A 1 for each pod of a gang, by namespace and pod: of its root itself, or of a Job that the root owns, as a JobSet's.

    Both are metrics of kube-state-metrics. Pods that ended count as long as their objects are there.
    """
    pods = f'kube_pod_owner{{namespace="{namespace}"}}'
    jobs = f'kube_job_owner{{namespace="{namespace}",owner_name="{gang}"}}'
    named = f'label_replace({jobs}, "owner_name", "$1", "job_name", "(.+)")'
    return (
        f'(max by (namespace, pod) (kube_pod_owner{{namespace="{namespace}",owner_name="{gang}"}}'
        f" or ({pods} and on (namespace, owner_name) {named})))"
    )


def gang_nodes(namespace: str = "$namespace", gang: str = "$gang") -> str:
    """A 1 for each node on which a pod of the gang runs."""
    placed = f'kube_pod_info{{namespace="{namespace}",node!=""}}'
    running = f'(kube_pod_status_phase{{namespace="{namespace}",phase="Running"}} == 1)'
    pods = gang_pods(namespace, gang)
    return f"max by (node) ({placed} and on (namespace, pod) {running} and on (namespace, pod) {pods})"


def of_workload(metric: str) -> str:
    """
    A metric of dcgm-exporter by the pod that uses the GPU.

    Where Prometheus does not honor labels, that pod is called `exported_pod`, and `pod` is the exporter's own.
    """
    named = f'label_replace({metric}, "pod", "$1", "exported_pod", "(.+)")'
    return f'label_replace({named}, "namespace", "$1", "exported_namespace", "(.+)")'


def of_gang(metric: str) -> str:
    """A metric of dcgm-exporter, of the GPUs that the chosen gang uses."""
    return f"{of_workload(metric)} and on (namespace, pod) {gang_pods()}"


def on_gang_nodes(metric: str, by: str) -> str:
    """A rate of node-exporter on the nodes of the chosen gang, summed *by* labels. `nodename` becomes `node`."""
    return (
        f"sum by ({by}) ({metric} * on (instance) group_left(node) "
        f'max by (instance, node) (label_replace(node_uname_info, "node", "$1", "nodename", "(.+)"))'
        f" and on (node) {gang_nodes()})"
    )


def rate_on_node(metric: str) -> str:
    """A counter of node-exporter as a rate, on the chosen node."""
    return f'rate({metric}[$__rate_interval]) and on (instance) node_uname_info{{nodename="$node"}}'


def counted(metric: str, by: str = "") -> str:
    """How much a counter of all processes grew in the shown time."""
    grouped = f"sum by ({by})" if by else "sum"
    return f"{grouped} (increase({metric}[$__range]))"


def events(metric: str, by: str, matchers: str = "") -> str:
    """
    How often a counter of all processes was raised in each `EVENTS_EVERY`, as whole numbers.

    `increase` does not see the event that creates a series, as the first finding of a rule does.
    """
    now = f"{metric}{matchers}"
    before = f"last_over_time({now}[1h] offset {EVENTS_EVERY})"
    return f"sum by ({by}) (({now} - {before}) > 0 or {now} unless {before}) > 0"


def mean(histogram: str, by: str = "") -> str:
    """The mean of what a histogram took in the shown time."""
    return f"{counted(f'{histogram}_sum', by)} / {counted(f'{histogram}_count', by)}"


def quantile(share: float, histogram: str, by: str = "") -> str:
    """A quantile of what a histogram took in the shown time."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (increase({histogram}_bucket[$__range])))"


def gpu_time_share(metric: str, of: str = "", window: str = "$__range") -> str:
    """The growth of a counter of GPU time by that of all GPU time of gangs, or by *of*."""
    whole = of or f"sum(increase(healthd_gpu_seconds_total[{window}]))"
    return f"sum(increase({metric}[{window}])) / {whole}"


def ettr(window: str = "$__range") -> str:
    """ETTR of all gangs, as docs/goodput.md defines it."""
    whole, waiting = (
        f"sum(increase(healthd_{name}_total[{window}]))" for name in ("gpu_seconds", "waiting_gpu_seconds")
    )
    return gpu_time_share("healthd_productive_gpu_seconds_total", f"({whole} - {waiting} > 0)", window)


def lost_gpu_hours(by: str = "", window: str = "$__range") -> str:
    """GPU-hours that faults and starts cost."""
    grouped = f"sum by ({by})" if by else "sum"
    return f"{grouped} (increase(healthd_lost_gpu_seconds_total[{window}])) / 3600"
