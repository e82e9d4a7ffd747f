"""Tiers: what is done about a class of faults. Every rule of every source names one. Pure; a table of data."""

from __future__ import annotations

import pkgutil
from functools import cache

import msgspec

from healthd.core.api.model import Blame, RepairAction, Severity

ADVICE = {
    RepairAction.NONE: "Nothing to do.",
    RepairAction.CHECK_APP: "Tell the owner of the job; the device is fine.",
    RepairAction.RESTART_APP: "Restart the job.",
    RepairAction.RESET_GPU: "Reset the GPU.",
    RepairAction.REBOOT_NODE: "Reboot the node.",
    RepairAction.INSPECT: "Look at it: diagnostics, seat, cable, power, cooling.",
    RepairAction.CONTACT_SUPPORT: "Replace the part.",
}


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about a class of faults. *fades_h*: hours after which a finding fades by itself; 0 is never."""

    tier: str
    severity: Severity
    action: RepairAction
    reason: str
    advice: str = ""
    """What a person should do, where the action alone does not make that clear."""
    quarantines: bool = False
    blame: Blame | None = None
    """None: as the rule's code decides."""
    fades_h: float = 0


class _Tiers(msgspec.Struct, frozen=True):
    source: str
    tiers: tuple[Tier, ...]


def tier(name: str) -> Tier:
    """The tier called *name*. A wrong name is an error in the data and fails the tests."""
    return all_tiers()[name]


@cache
def all_tiers() -> dict[str, Tier]:
    """Every tier by name. Loaded at first use, so that importing costs nothing."""
    data = pkgutil.get_data("healthd.core.diagnosis", "tiers.json")
    if data is None:
        raise FileNotFoundError(
            "tiers.json is missing from the installed package healthd.core.diagnosis; install it again"
        )
    return {tier.tier: tier for tier in msgspec.json.decode(data, type=_Tiers).tiers}
