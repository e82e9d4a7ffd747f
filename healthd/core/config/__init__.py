"""
What an operator may choose: one small struct per topic, with the reason of every default beside it.

`healthd.cli.configuration` reads these from YAML and writes `docs/configuration.md` from them, so a description here is
the documentation. This package knows nothing of files: it only says which values there are and which are allowed.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from healthd.core.config.alerts import AlertsPolicy, SinkKind, SinkPolicy, TeamPolicy
from healthd.core.config.base import Policy
from healthd.core.config.breaker import BreakerPolicy
from healthd.core.config.checkpoints import CheckpointsPolicy, PrecheckPolicy
from healthd.core.config.durations import format_duration, parse_duration, short_duration
from healthd.core.config.gang_kinds import GangsPolicy, KindDescription, PodsDescription, Trap
from healthd.core.config.gangs import HangPolicy, RecoveryPolicy, StartFresh
from healthd.core.config.heartbeat import HeartbeatMethod, HeartbeatPolicy
from healthd.core.config.nodes import GiveBack, JudgePolicy, QuarantinePolicy
from healthd.core.config.process import HttpPolicy, LeaderPolicy, LogFormat, LogLevel, LogPolicy
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.config.replaced import REPLACED
from healthd.core.config.site_rules import SiteRule
from healthd.core.config.sources import ForeignPolicy, KernelLogPolicy, KernelLogSource, ProbesPolicy
from healthd.core.config.web import WebAccess, WebPolicy

__all__ = [
    "REPLACED",
    "AlertsPolicy",
    "BreakerPolicy",
    "CheckpointsPolicy",
    "Config",
    "ForeignPolicy",
    "GangsPolicy",
    "GiveBack",
    "HangPolicy",
    "HeartbeatMethod",
    "HeartbeatPolicy",
    "HttpPolicy",
    "JudgePolicy",
    "KernelLogPolicy",
    "KernelLogSource",
    "KindDescription",
    "LeaderPolicy",
    "LogFormat",
    "LogLevel",
    "LogPolicy",
    "PodsDescription",
    "Policy",
    "PrecheckPolicy",
    "ProbesPolicy",
    "QuarantinePolicy",
    "RecoveryPolicy",
    "RemediationPolicy",
    "SinkKind",
    "SinkPolicy",
    "SiteRule",
    "StartFresh",
    "TeamPolicy",
    "Trap",
    "WebAccess",
    "WebPolicy",
    "format_duration",
    "parse_duration",
    "short_duration",
]


class Config(Policy, frozen=True, kw_only=True):
    """The whole configuration file. Every section, and every key in it, may be left out."""

    host_root: Annotated[
        str,
        Meta(
            description="The folder below which the host's `/sys`, `/proc`, `/run` and `/dev` are found. In a pod they "
            "are mounted there: the manifests name `/host`, and mount below it what the agent needs of `/sys`. "
            "Without `/run` there, nvidia-persistenced and the fabric manager are not looked at. Without `/proc`, the "
            "pod's own is read: it shows the memory and the disks of the host. Without `/sys/fs/cgroup`, only kubelets "
            "prove the end of pods.",
            pattern="^/",
            extra={"shape": "an absolute path"},
        ),
    ] = "/"
    quarantine: QuarantinePolicy = QuarantinePolicy()
    remediation: RemediationPolicy = RemediationPolicy()
    recovery: RecoveryPolicy = RecoveryPolicy()
    breaker: BreakerPolicy = BreakerPolicy()
    hang: HangPolicy = HangPolicy()
    gangs: GangsPolicy = GangsPolicy()
    judge: JudgePolicy = JudgePolicy()
    kernel_log: KernelLogPolicy = KernelLogPolicy()
    probes: ProbesPolicy = ProbesPolicy()
    checkpoints: CheckpointsPolicy = CheckpointsPolicy()
    precheck: PrecheckPolicy = PrecheckPolicy()
    leader: LeaderPolicy = LeaderPolicy()
    http: HttpPolicy = HttpPolicy()
    web: WebPolicy = WebPolicy()
    log: LogPolicy = LogPolicy()
    foreign: ForeignPolicy = ForeignPolicy()
    alerts: AlertsPolicy = AlertsPolicy()
    heartbeat: HeartbeatPolicy = HeartbeatPolicy()

    def __post_init__(self) -> None:
        if self.remediation.at_once and self.quarantine.give_back is not GiveBack.REPAIRED:
            raise ValueError(
                "remediation.at_once needs quarantine.give_back: repaired. With `mended` an agent gives its node back "
                "as soon as the reset has ended the finding, before anything was checked"
            )
