"""
What an operator may choose: one small struct per topic, with the reason of every default beside it.

`healthd.cli.config` reads these from YAML and writes `docs/configuration.md` from them, so a description here is the
documentation. This package knows nothing of files: it only says which values there are and which are allowed.
"""

from __future__ import annotations

from healthd.core.policy.base import Policy
from healthd.core.policy.checkpoints import CheckpointsPolicy, PrecheckPolicy
from healthd.core.policy.durations import format_duration, parse_duration
from healthd.core.policy.gangs import HangPolicy, RecoveryPolicy, StartFresh
from healthd.core.policy.nodes import GiveBack, JudgePolicy, QuarantinePolicy
from healthd.core.policy.process import HttpPolicy, LeaderPolicy, LogFormat, LogLevel, LogPolicy
from healthd.core.policy.site_rules import SiteRule
from healthd.core.policy.sources import ForeignPolicy, KernelLogPolicy, KernelLogSource, PodsPolicy, ProbesPolicy

__all__ = [
    "CheckpointsPolicy",
    "Config",
    "ForeignPolicy",
    "GiveBack",
    "HangPolicy",
    "HttpPolicy",
    "JudgePolicy",
    "KernelLogPolicy",
    "KernelLogSource",
    "LeaderPolicy",
    "LogFormat",
    "LogLevel",
    "LogPolicy",
    "PodsPolicy",
    "Policy",
    "PrecheckPolicy",
    "ProbesPolicy",
    "QuarantinePolicy",
    "RecoveryPolicy",
    "SiteRule",
    "StartFresh",
    "format_duration",
    "parse_duration",
]


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
