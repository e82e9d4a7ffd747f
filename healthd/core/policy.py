"""
What an operator may choose: one small struct per topic, with the reason of every default beside it.

`healthd.cli.config` reads these from YAML and writes `docs/configuration.md` from them, so a description here is the
documentation. This module knows nothing of files: it only says which values there are and which are allowed.
"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
"""Milliseconds per unit, largest first."""
_LONGEST = 3650 * _UNITS["d"]
"""Keeps `now` plus a duration within what a datetime can hold."""
_DURATION = re.compile(r"(?:\d{1,9}(?:d|h|ms|m|s))+", re.ASCII)
_TERM = re.compile(r"(\d+)(d|h|ms|m|s)", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Read `250ms`, `30s`, `5m`, `1h30m` or `2d`. Raises ValueError with a text for the person who wrote it."""
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError(f"{text!r} is not a duration; write a number with a unit, such as 250ms, 30s, 5m or 1h30m")
    terms = _TERM.findall(text)
    units = [unit for _, unit in terms]
    if units != sorted(set(units), key=list(_UNITS).index):
        raise ValueError(f"{text!r} is not a duration; name each unit once, the largest first, as in 1h30m")
    milliseconds = sum(int(number) * _UNITS[unit] for number, unit in terms)
    if milliseconds > _LONGEST:
        raise ValueError(f"{text!r} is longer than ten years")
    return timedelta(milliseconds=milliseconds)


def format_duration(duration: timedelta) -> str:
    """Write a duration as `parse_duration` reads it; what is shorter than a millisecond is dropped."""
    left = duration // timedelta(milliseconds=1)
    parts = []
    for unit, size in _UNITS.items():
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def _duration(description: str, *, at_least: timedelta = timedelta(0)) -> Meta:
    return Meta(description=description, extra={"at_least": at_least})


class StartFresh(StrEnum):
    """When a gang may start from nothing because no checkpoint can be loaded."""

    NEVER = "never"
    NEVER_SAVED = "never_saved"
    ALWAYS = "always"


class KernelLogSource(StrEnum):
    """Where kernel records are read."""

    AUTO = "auto"
    KMSG = "kmsg"
    JOURNAL = "journal"
    FILE = "file"


class LogFormat(StrEnum):
    """How healthd writes its own log."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least important event that is still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every topic: immutable, every field has a default, and a key that nobody defined is an error."""


class QuarantinePolicy(Policy, frozen=True, kw_only=True):
    """How far healthd may go in taking nodes out of service."""

    budget: Annotated[
        int,
        Meta(
            description="Nodes that healthd may hold in quarantine at the same time, in the whole cluster. Exact, "
            "however many agents fire at once. Two by default: one bad node and the next one while the "
            "first is repaired; more at once is more often a wrong judgement than broken hardware. 0 "
            "quarantines nothing.",
            ge=0,
        ),
    ] = 2
    per_domain: Annotated[
        int,
        Meta(
            description="The same limit within one failure domain (nodes with the same value of `domain_label`). 0, "
            "the default, sets no limit besides `budget`; a value above `budget` changes nothing.",
            ge=0,
        ),
    ] = 0
    domain_label: Annotated[
        str,
        Meta(
            description="The node label that names a failure domain. Used only when `per_domain` is above 0.",
            min_length=1,
            max_length=317,
        ),
    ] = "topology.kubernetes.io/zone"
    namespace: Annotated[
        str,
        Meta(
            description="The namespace of the budget slots (one Lease for each quarantined node). Every agent of a "
            "cluster must name the same one, or each namespace has a budget of its own.",
            pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
            extra={"shape": "a Kubernetes namespace: up to 63 lower-case letters, digits and inner hyphens"},
        ),
    ] = "healthd-system"
    cordon: Annotated[
        bool,
        Meta(
            description="Whether a node is really cordoned and tainted. With `false` healthd judges, reports and says "
            "what it would have done, and leaves every node alone: the way to try it on a cluster.",
        ),
    ] = True


class RecoveryPolicy(Policy, frozen=True, kw_only=True):
    """How a stopped gang is brought back, and when healthd stops trying."""

    max_no_advance: Annotated[
        int,
        Meta(
            description="Give up on a gang after so many restarts in a row that brought no step beyond the last one. "
            "Progress sets the count back to 0, so a long job may be restarted any number of times. The "
            "annotation `healthd.dev/max-no-advance` on a gang overrides it.",
            ge=1,
        ),
    ] = 3
    backoff_base: Annotated[
        timedelta,
        _duration(
            "The wait before a restart that follows one without progress; doubled for each further one, up to "
            "`backoff_max`. The first restart after progress does not wait."
        ),
    ] = timedelta(seconds=10)
    backoff_max: Annotated[
        timedelta,
        _duration("The longest wait between two restarts. At least `backoff_base`."),
    ] = timedelta(minutes=5)
    fault_window: Annotated[
        timedelta,
        _duration(
            "How long the failure of a rank waits for evidence of broken hardware before it counts as a fault of the "
            "software. The kernel log usually leads by milliseconds; two seconds cover a busy machine. Longer delays "
            "every restart after a software fault, shorter may put a gang back on a bad node."
        ),
    ] = timedelta(seconds=2)
    grace: Annotated[
        timedelta,
        _duration(
            "How long the ranks of a stopped gang have between SIGTERM and SIGKILL. 30 s is what Kubernetes gives. "
            "Make it longer only if the job saves a checkpoint when it is told to stop: ranks that wait for a dead "
            "peer use it up to the end."
        ),
    ] = timedelta(seconds=30)
    start_deadline: Annotated[
        timedelta,
        _duration(
            "A restarted gang must have all its ranks running within this time, else the restart counts as one "
            "without progress. Half an hour allows for pulling a large image on a fresh node.",
            at_least=timedelta(seconds=1),
        ),
    ] = timedelta(minutes=30)
    spare_after: Annotated[
        timedelta,
        _duration(
            "When the scheduler has found no node for a member of a restarted gang for so long, and other pods are on "
            "a node that the gang had, it gets a spare. Nobody holds the nodes of a gang while it is stopped. Twenty "
            "seconds let a pod end that is on its way out; a spare that was claimed in vain is given back.",
            at_least=timedelta(seconds=1),
        ),
    ] = timedelta(seconds=20)
    confirm_after: Annotated[
        timedelta,
        _duration(
            "Where healthd cannot see the steps of a gang: so much time with all ranks running counts as recovered. "
            "Where the gang has not yet shown how often it saves, a sign of life after this time does; else a new step "
            "alone.",
            at_least=timedelta(seconds=1),
        ),
    ] = timedelta(minutes=10)
    fence_timeout: Annotated[
        timedelta | None,
        _duration(
            "After this time without proof that the old ranks are gone, start anyway. `null`, the default, holds the "
            "gang and pages a person instead: a rank that still runs on a node which nobody can reach may overwrite "
            "the checkpoints of the new one. Set it only where storage itself keeps old writers out.",
            at_least=timedelta(minutes=1),
        ),
    ] = None
    start_fresh: Annotated[
        StartFresh,
        Meta(
            description="When a gang may start from step 0. `never_saved`: only while no checkpoint of it was ever "
            "seen, so saved work is never silently lost. `always`: also when every checkpoint is damaged. "
            "`never`: hold and say so.",
        ),
    ] = StartFresh.NEVER_SAVED
    look_every: Annotated[
        timedelta,
        _duration(
            "How often the checkpoints of a running gang are looked at for a new step, and everything else is read "
            "again even if nothing seems to have changed. Faults do not wait for it.",
            at_least=timedelta(milliseconds=50),
        ),
    ] = timedelta(seconds=10)
    spare_like: Annotated[
        tuple[str, ...],
        Meta(
            description="Node labels that say which hardware a node has. A spare must have the same value as the node "
            "that it replaces in the first of these that this one carries, and at least as many GPUs and other "
            "extended resources: a gang runs as fast as its slowest member, if it runs at all."
        ),
    ] = ("nvidia.com/gpu.product", "node.kubernetes.io/instance-type")
    spare_near: Annotated[
        tuple[str, ...],
        Meta(
            description="Node labels that say where a node is, the closest first. Among the spares that fit, one is "
            "preferred that has the same values as the node that it replaces."
        ),
    ] = ("topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
    keep: Annotated[
        int,
        Meta(
            description="So many recoveries that have ended are kept of each gang, the newest, for people to read; "
            "older ones are deleted. Those of a gang that is gone are kept, too, until `keep_for` has passed. At least "
            "two: a restart is judged by the one before it.",
            ge=2,
        ),
    ] = 10
    keep_for: Annotated[
        timedelta,
        _duration(
            "How long the recoveries of a gang that is gone are kept. Names of jobs are rarely used twice, so without "
            "a limit they would pile up for ever.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(days=30)
    breaker_restarts: Annotated[
        int,
        Meta(
            description="When so many recoveries have begun within `breaker_window`, across all gangs, the next one is "
            "held until the window has passed: faults that come in crowds are a broken switch, store or "
            "healthd itself. A gang that lost a member is stopped and waits; one that still runs, runs on.",
            ge=1,
        ),
    ] = 10
    breaker_window: Annotated[
        timedelta,
        _duration("The time over which `breaker_restarts` counts.", at_least=timedelta(seconds=1)),
    ] = timedelta(minutes=10)
    breaker_share: Annotated[
        float,
        Meta(
            description="The same while more than this share of all nodes with GPUs are bad (in quarantine, not ready "
            "or unhealthy) that went bad within `breaker_fresh`. One in ten at once is hardly ever ten broken "
            "machines, and spares for them would hardly be there. 1 never holds.",
            gt=0,
            le=1,
        ),
    ] = 0.1
    breaker_nodes: Annotated[
        int,
        Meta(
            description="Fewer bad nodes than this never hold a restart, whatever their share: in a small cluster two "
            "are soon one in ten.",
            ge=1,
        ),
    ] = 3
    breaker_fresh: Annotated[
        timedelta,
        _duration(
            "A node that has been bad for longer does not count: people know of it, and parts may take days.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(hours=1)

    def __post_init__(self) -> None:
        if self.backoff_max < self.backoff_base:
            raise ValueError(
                f"backoff_max ({format_duration(self.backoff_max)}) is shorter than "
                f"backoff_base ({format_duration(self.backoff_base)})"
            )


class HangPolicy(Policy, frozen=True, kw_only=True):
    """When silence means that a gang hangs. Judged by the gang's own rhythm, never by a fixed time alone."""

    enabled: Annotated[
        bool,
        Meta(description="Whether a gang that hangs is restarted. With `false` a hang is not looked for."),
    ] = True
    factor: Annotated[
        float,
        Meta(
            description="A gang hangs when it made no progress for this many times the longest interval seen between "
            "two of its steps. Five allows for a slow checkpoint or an evaluation between steps.",
            ge=1.5,
        ),
    ] = 5.0
    floor: Annotated[
        timedelta,
        _duration(
            "Silence shorter than this is never a hang, whatever the rhythm. Ten minutes is PyTorch's own NCCL "
            "time-out: below it the job may still end by itself.",
            at_least=timedelta(seconds=1),
        ),
    ] = timedelta(minutes=10)
    first_step: Annotated[
        timedelta,
        _duration(
            "Silence allowed before an attempt's first new step, where that is more: loading a checkpoint, joining "
            "the others and compiling are not the gang's rhythm."
        ),
    ] = timedelta(minutes=30)
    min_intervals: Annotated[
        int,
        Meta(
            description="Intervals between steps that must have been seen before the rhythm is trusted. Until then a "
            "gang is never called hanging: the first steps compile and warm up.",
            ge=1,
        ),
    ] = 3


class JudgePolicy(Policy, frozen=True, kw_only=True):
    """
    How findings are judged: rules that are tried, left out or given other limits, and when faults that look like the
    application's turn out to be the device's.

    For the latter all three must hold: `app_repeats` faults, from `app_distinct_jobs` jobs, within `app_window`. (A
    finding keeps its newest five pieces of evidence, so no more jobs than that can be told apart.)
    """

    app_repeats: Annotated[
        int,
        Meta(
            description="Application faults (such as XID 13 or 31) on one GPU, within `app_window`, that turn the "
            "suspicion on the GPU. One alone never takes a node out of service.",
            ge=2,
        ),
    ] = 3
    app_distinct_jobs: Annotated[
        int,
        Meta(
            description="From how many different jobs those faults must come: one job with a bug produces any number "
            "of faults on a good GPU, and three jobs rarely share a bug. A job that had the same fault on another GPU "
            "does not count. At most `app_repeats`.",
            ge=2,
            le=5,
        ),
    ] = 3
    app_window: Annotated[
        timedelta,
        _duration(
            "The time over which those faults count; older ones are forgotten. A day sees a GPU through several jobs.",
            at_least=timedelta(seconds=1),
        ),
    ] = timedelta(hours=24)
    shadow: Annotated[
        tuple[str, ...],
        Meta(
            description="Rules that are being tried, such as `ib-symbol-errors` or `nvml-*`: their findings say what "
            "they would do, and do nothing. Names are in docs/findings.md."
        ),
    ] = ()
    off: Annotated[
        tuple[str, ...],
        Meta(description="Rules about counters and states that are not applied, such as `clock-unsynchronised`."),
    ] = ()
    limits: Annotated[
        tuple[str, ...],
        Meta(
            description="Limits of your own for rules about counters and gauges, such as `ib-symbol-errors 50 in 1h` "
            "or `nvml-temperature 92`. A span can only be given to a rule that has one."
        ),
    ] = ()

    def __post_init__(self) -> None:
        if self.app_distinct_jobs > self.app_repeats:
            raise ValueError(
                f"app_distinct_jobs ({self.app_distinct_jobs}) is more than app_repeats ({self.app_repeats}); "
                "so many jobs cannot cause so few faults"
            )


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
            description="The device or file to read, for the sources `kmsg` and `file`. In a container, where the "
            "host's device is mounted.",
            min_length=1,
        ),
    ] = "/dev/kmsg"
    socket: Annotated[
        str,
        Meta(
            description="The unix socket of the opener, a small privileged helper that hands out an open `/dev/kmsg`. "
            "With it the source `kmsg` (or `auto`) asks there instead of opening `path`, and healthd itself needs no "
            "privilege; it does not fall back to the journal. Empty, the default, opens `path`.",
        ),
    ] = ""
    trust_user_space: Annotated[
        bool,
        Meta(
            description="Also believe lines that a process, not the kernel, wrote to the log. For tests and the demo "
            "only: with it, whoever may write to the log can take the node out of service. Shown loudly "
            "while it is on.",
        ),
    ] = False


class PodsPolicy(Policy, frozen=True, kw_only=True):
    """How an agent on Kubernetes sees which pods have processes on its node: proof that a gang has really stopped."""

    cgroups: Annotated[
        str,
        Meta(
            description="Where the host's tree of control groups is mounted, read-only. It tells the agent which pods "
            "have processes, also while the kubelet is dead. Empty: it is not looked at, and only kubelets prove the "
            "end of pods.",
        ),
    ] = "/sys/fs/cgroup"


class ProbesPolicy(Policy, frozen=True, kw_only=True):
    """What an agent on Kubernetes reads of its node besides the kernel log; docs/findings.md says what follows."""

    sys: Annotated[
        str,
        Meta(description="Where the host's `/sys` is to be seen, or parts of it.", pattern="^/"),
    ] = "/sys"
    proc: Annotated[
        str,
        Meta(description="Where a `/proc` is to be seen: memory and disks of the host are in anybody's.", pattern="^/"),
    ] = "/proc"
    run: Annotated[
        str,
        Meta(
            description="Where the host's `/run` is mounted, to see whether nvidia-persistenced and the fabric manager "
            "answer. Empty: it is not looked at."
        ),
    ] = ""
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
    dcgm_url: Annotated[
        str,
        Meta(
            description="The page of the node's own dcgm-exporter, such as `http://${NODE_IP}:9400/metrics`; it is "
            "heard as a second witness. Environment variables are filled in. Empty: there is none."
        ),
    ] = ""
    off: Annotated[
        tuple[str, ...],
        Meta(description="Sources that are not read, such as `nvml`. The metric `healthd_probe_up` names them."),
    ] = ()


class CheckpointsPolicy(Policy, frozen=True, kw_only=True):
    """How the controller on Kubernetes reads the checkpoints of gangs."""

    volumes_at: Annotated[
        str,
        Meta(
            description="Where the volumes of gangs are mounted in the controller's pod, read-only: what a gang calls "
            "`pvc://claim/path` is read at `<volumes_at>/<namespace>/<claim>/<path>`.",
            pattern="^/",
            extra={"shape": "an absolute path"},
        ),
    ] = "/checkpoints"
    allowed: Annotated[
        tuple[str, ...],
        Meta(
            description="What gangs may name besides claims, each with all that is below it: folders in the "
            "controller's pod for `file:///path`, such as `/shared`, and buckets that the controller's credentials can "
            "read, such as `s3://training/team-a`. The folder `volumes_at` is always allowed. Everything else is "
            "refused: who may annotate a job could have any file of the controller read, its token among them.",
            pattern="^(/|(s3|gs|az|abfss)://[^/])",
            extra={"shape": "an absolute path, or a URL such as s3://bucket/path"},
        ),
    ] = ()
    verifier: Annotated[
        bool,
        Meta(
            description="Whether checkpoints on a claim that is not mounted in the controller's pod are verified where "
            "they are: by a short-lived pod in the gang's namespace that mounts the claim read-only. It needs the role "
            "`healthd-controller-verifier`. With `false` such a gang is held when it has to be restarted.",
        ),
    ] = True
    verifier_image: Annotated[
        str,
        Meta(
            description="The image of that pod. Empty, the default, takes the one of the controller's own pod, and the "
            "admission policy lets no other pass.",
        ),
    ] = ""
    verifier_user: Annotated[
        int,
        Meta(
            description="As whom that pod runs where the pods of the gang run as root or do not say as whom: what it "
            "is to verify has to be readable for this user. Never root.",
            ge=1,
        ),
    ] = 65532
    verify_within: Annotated[
        timedelta,
        _duration(
            "How long that pod may read. Half an hour is a terabyte at 600 MB/s; what takes longer is refused, and "
            "the gang is held.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(minutes=30)
    look_by_pod_every: Annotated[
        timedelta,
        _duration(
            "How often such a pod looks for a new step of a gang that was restarted, until one confirms it.",
            at_least=timedelta(seconds=10),
        ),
    ] = timedelta(minutes=5)


class PrecheckPolicy(Policy, frozen=True, kw_only=True):
    """Whether a gang that runs could be resumed: its checkpoints are looked at before anything breaks."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether the controller looks at the checkpoints of gangs that run, and says what a fault "
            "would cost. Only headers and sizes are read.",
        ),
    ] = True
    every: Annotated[
        timedelta,
        _duration(
            "How often each gang is looked at. Five minutes are soon enough for a person, and cost a file server "
            "little.",
            at_least=timedelta(seconds=5),
        ),
    ] = timedelta(minutes=5)
    by_pod: Annotated[
        bool,
        Meta(
            description="Whether a verifier pod does so for checkpoints on claims that are not mounted in the "
            "controller's pod. Off by default: it is one pod for each such gang and look.",
        ),
    ] = False
    late_factor: Annotated[
        float,
        Meta(
            description="A gang saves late when its newest good checkpoint is this many times as old as its usual "
            "interval.",
            ge=1.5,
        ),
    ] = 3.0
    late_floor: Annotated[
        timedelta,
        _duration("A good checkpoint that is younger than this is never late, however often the gang saves."),
    ] = timedelta(minutes=10)
    first_within: Annotated[
        timedelta,
        _duration(
            "A gang that has run for so long without any good checkpoint is late, too: its interval is not known yet.",
            at_least=timedelta(minutes=1),
        ),
    ] = timedelta(hours=6)
    room_for: Annotated[
        int,
        Meta(description="Say so when there is room for fewer than this many more checkpoints of the last size.", ge=1),
    ] = 3


class LeaderPolicy(Policy, frozen=True, kw_only=True):
    """Which one of several controllers acts."""

    lease: Annotated[
        timedelta,
        _duration(
            "After so long without a sign of the leader a standby takes over. The leader renews its lease seven times "
            "in it, and stops acting when it could not for two thirds of it. 15 s is what the control plane's own "
            "programs take; shorter costs requests, and makes a busy API server depose leaders. A leader that ends by "
            "itself is followed at once.",
            at_least=timedelta(seconds=2),
        ),
    ] = timedelta(seconds=15)


class HttpPolicy(Policy, frozen=True, kw_only=True):
    """The read-only HTTP endpoint: /metrics, /healthz, /readyz."""

    address: Annotated[
        str,
        Meta(
            description="Where to listen, `host:port`: `127.0.0.1:9400`, `[::1]:9400`, or `:9400` for every "
            "interface; port 0 takes a free one. Empty, the default, does not listen: what is not asked "
            "for is not opened.",
        ),
    ] = ""


class LogPolicy(Policy, frozen=True, kw_only=True):
    """healthd's own log, on standard error."""

    format: Annotated[
        LogFormat,
        Meta(
            description="`console` is for people, `json` (one object a line) for log collectors. `auto` is console on "
            "a terminal and json elsewhere.",
        ),
    ] = LogFormat.AUTO
    level: Annotated[
        LogLevel,
        Meta(description="The least important event that is written. Acts and their reasons are `info` or above."),
    ] = LogLevel.INFO


class ForeignPolicy(Policy, frozen=True, kw_only=True):
    """
    What other detectors say about a node: its readiness, and the conditions, taints and labels of NVSentinel, EKS, GKE,
    AKS, node-problem-detector, the autoscalers and others. Such a sign restarts gangs away from the node, or only keeps
    new ones off; it never cordons. `healthd/core/data/foreign.json` has the rows.
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
            "`restart`, `avoid` or `tell`; a condition counts while it is `True`, unless you name another status."
        ),
    ] = ()


class Config(Policy, frozen=True, kw_only=True):
    """The whole configuration file. Every section, and every key in it, may be left out."""

    quarantine: QuarantinePolicy = QuarantinePolicy()
    recovery: RecoveryPolicy = RecoveryPolicy()
    hang: HangPolicy = HangPolicy()
    judge: JudgePolicy = JudgePolicy()
    kernel_log: KernelLogPolicy = KernelLogPolicy()
    pods: PodsPolicy = PodsPolicy()
    probes: ProbesPolicy = ProbesPolicy()
    checkpoints: CheckpointsPolicy = CheckpointsPolicy()
    precheck: PrecheckPolicy = PrecheckPolicy()
    leader: LeaderPolicy = LeaderPolicy()
    http: HttpPolicy = HttpPolicy()
    log: LogPolicy = LogPolicy()
    foreign: ForeignPolicy = ForeignPolicy()
