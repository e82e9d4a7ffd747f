"""
What an operator may choose: one small struct per topic, with the reason of every default beside it.

`healthd.cli.config` reads these from YAML and writes `docs/configuration.md` from them, so a description here is the
documentation. This package knows nothing of files: it only says which values there are and which are allowed.
"""

from __future__ import annotations

from healthd.core.config.base import Policy
from healthd.core.config.checkpoints import CheckpointsPolicy, PrecheckPolicy
from healthd.core.config.durations import format_duration, parse_duration
from healthd.core.config.gangs import HangPolicy, RecoveryPolicy, StartFresh
from healthd.core.config.nodes import GiveBack, JudgePolicy, QuarantinePolicy
from healthd.core.config.process import HttpPolicy, LeaderPolicy, LogFormat, LogLevel, LogPolicy
from healthd.core.config.site_rules import SiteRule
from healthd.core.config.sources import ForeignPolicy, KernelLogPolicy, KernelLogSource, PodsPolicy, ProbesPolicy

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
