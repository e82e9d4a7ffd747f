"""
Judging NVIDIA's error codes: catalogue and rules as data, and the judge that reads them. Pure.
"""

from __future__ import annotations

from healthd.core.diagnosis.xid.judge import LOST_RULE, RECOVERY_RULE, fades_after_hours, is_the_drivers, judge
from healthd.core.diagnosis.xid.tables import Code, SwitchCode, XidRules, rules, sxid_codes, xid_codes
from healthd.core.diagnosis.xid.words import Wording, wordings

__all__ = [
    "LOST_RULE",
    "RECOVERY_RULE",
    "Code",
    "SwitchCode",
    "Wording",
    "XidRules",
    "fades_after_hours",
    "is_the_drivers",
    "judge",
    "rules",
    "sxid_codes",
    "wordings",
    "xid_codes",
]
