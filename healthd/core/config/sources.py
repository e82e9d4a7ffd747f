"""What is read of a node, and what other detectors say of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from healthd.core.config.base import Policy


class KernelLogSource(StrEnum):
    """Where kernel records are read."""

    AUTO = "auto"
    KMSG = "kmsg"
    JOURNAL = "journal"
    FILE = "file"


class KernelLogPolicy(Policy, frozen=True, kw_only=True):
    """Where kernel records come from, and which of them are believed."""

    source: Annotated[
        KernelLogSource,
        Meta(
            description="`kmsg` reads the kernel's own device: sequence numbers, so that losses are counted. "
            "`journal` follows journald, `file` follows a log file at `path`. `auto` takes kmsg where it "
            "may be read, else the journal.",
        ),
    ] = KernelLogSource.AUTO
    path: Annotated[
        str,
        Meta(
            description="The log file of the source `file`, or another device for the source `kmsg`. Empty, the "
            "default, is `/dev/kmsg` below `host_root`.",
        ),
    ] = ""
    socket: Annotated[
        str,
        Meta(
            description="The unix socket of the opener, a small privileged helper that hands out an open `/dev/kmsg`. "
            "With it the source `kmsg` (or `auto`) asks there instead of opening the device, and healthd itself needs "
            "no privilege; it does not fall back to the journal. Empty, the default, opens the device.",
        ),
    ] = ""
    trust_user_space: Annotated[
        bool,
        Meta(
            description="Also believe lines that a process, not the kernel, wrote to the log. For tests and the demo "
            "only: with it, any process that may write to the log can take the node out of service. A warning "
            "shows while it is on.",
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.source is KernelLogSource.FILE and not self.path:
            raise ValueError("path is missing: the source `file` needs the path of a log file")
        if self.source is KernelLogSource.JOURNAL and self.path:
            raise ValueError(f"path is {self.path}, and the source `journal` reads none")


class ProbesPolicy(Policy, frozen=True, kw_only=True):
    """What an agent on Kubernetes reads of its node besides the kernel log; docs/findings/ says what follows."""

    file_systems: Annotated[
        tuple[str, ...],
        Meta(
            description="Files or folders whose file systems must have room and be writable. In a pod `/etc/hosts` is "
            "a file of the kubelet's own file system.",
            pattern="^/",
            extra={"shape": "an absolute path"},
        ),
    ] = ("/etc/hosts",)
    gpus: Annotated[
        int | None,
        Meta(description="How many GPUs a node has. `null`: as many as were seen before.", ge=1),
    ] = None
    ports: Annotated[
        int | None,
        Meta(description="How many RDMA ports of a node must be up. `null`: those that were up before.", ge=1),
    ] = None
    port_rate_gbps: Annotated[
        float | None,
        Meta(
            description="What each of them must run at, in Gb/s, such as 400. `null`: as fast as before, and as its "
            "peers.",
            gt=0,
            le=10_000,
        ),
    ] = None
    dcgm_url: Annotated[
        str,
        Meta(
            description="The page of the node's own dcgm-exporter, such as `http://${NODE_IP}:9400/metrics`; it is "
            "a second source. Environment variables are filled in. Empty: there is none."
        ),
    ] = ""
    rhythms: Annotated[
        bool,
        Meta(
            description="Whether the busy pods of a node are sampled once a second, by their control groups, and its "
            "GPUs, by NVML, to see when one no longer does what it usually does (docs/hangs)."
        ),
    ] = True
    off: Annotated[
        tuple[str, ...],
        Meta(description="Sources that are not read, such as `nvml`. The metric `healthd_probe_up` names them."),
    ] = ()


class ForeignPolicy(Policy, frozen=True, kw_only=True):
    """
    What other detectors say about a node: its readiness, and the conditions, taints and labels of NVSentinel, EKS, GKE,
    AKS, node-problem-detector, the autoscalers and others. Such a sign restarts gangs away from the node, or only keeps
    new ones off; it never cordons. `healthd/core/recovery/nodes/foreign_signs.json` has the rows.
    """

    enabled: Annotated[
        bool,
        Meta(
            description="Whether such signs count. With `false` only healthd's own findings and nodes that are gone "
            "restart a gang."
        ),
    ] = True
    off: Annotated[
        tuple[str, ...],
        Meta(description="Names of rows that do not count here, such as `gke-maintenance-soon`."),
    ] = ()
    rows: Annotated[
        tuple[str, ...],
        Meta(
            description="Rows of your own, such as `condition DiskFailing after 5m -> avoid`, "
            "`taint example.com/broken -> restart` or `label example.com/state=bad,worse -> restart`. The effect is "
            "`restart`, `move` (right after a save, before a maintenance), `avoid` or `tell`; a condition counts while "
            "it is `True`, unless you name another status."
        ),
    ] = ()
