"""
What the register words of an NVLink error mean: Xid 74 (A100, H100) and Xid 144 to 150 (Blackwell).

Layout of word 0 (intrinfo) of 144 to 150: sub-code in bits 25 to 20; unit in the low 10 bits before driver R575, in
the low 7 since. No value fits an old and a new rule of the same Xid, so both are tried. Word 1 is the error status.
"""

from __future__ import annotations

from healthd.core.diagnosis.klog.message import LinkFault
from healthd.core.diagnosis.xid.tables import Unit, nvlink

OLD_MASK, NEW_MASK, SUB_CODE_SHIFT, SUB_CODE_MASK = 0x3FF, 0x7F, 20, 0x3F
OLD_PROMOTED, NEW_PROMOTED = 1 << 10, 1 << 7
"""In units that can be promoted, this bit means that the driver treats the error as fatal."""

_WORST_FIRST = ("hardware", "mechanics", "reset", "watch", "sympathetic", "ignore")
_TIER_OF_74 = {
    "hardware": "hardware",
    "mechanics": "mechanics",
    "reset": "reset",
    "watch": "reset",
    "sympathetic": "await_154",
    "ignore": "record",
}
TIERS_OF_74 = frozenset(_TIER_OF_74.values())
TIERS_OF_LINKS = frozenset({"reset", "undecided", "peer", "await_154", "record"})
"""What `tier_of_74` and `tier_of_link` can return."""


def tier_of_74(fault: LinkFault | None) -> str:
    """The tier that the registers of an Xid 74 ask for. `reset` where they are missing or match no known rule."""
    if fault is None:
        return "reset"
    outcomes = {
        register.outcome
        for register in nvlink().registers
        if register.word <= len(fault.words) and any(fault.words[register.word - 1] >> bit & 1 for bit in register.bits)
    }
    return next((_TIER_OF_74[outcome] for outcome in _WORST_FIRST if outcome in outcomes), "reset")


def decode_unit(xid: int, fault: LinkFault) -> Unit | None:
    """The rule that fits the words of a 144 to 150; None where none is known."""
    if len(fault.words) < 2:
        return None
    return next((unit for unit in nvlink().units if unit.xid == xid and _fits(unit, fault)), None)


def tier_of_link(xid: int, fault: LinkFault | None) -> str:
    """The tier of a 144 to 150: by its rule and by the severity word of the line, the worse of both."""
    unit = decode_unit(xid, fault) if fault else None
    if fault is None or unit is None:
        return "reset" if fault and fault.fatal else "undecided"
    if unit.follow_up == "INVESTIGATE_PEER_DEVICE":
        return "peer"
    if unit.outcome == "reset" or fault.fatal or (unit.promotable and _promoted(unit, fault.words[0])):
        return "reset"
    return "await_154" if unit.outcome == "await_154" else "record"


def _fits(unit: Unit, fault: LinkFault) -> bool:
    info, status = fault.words[0], fault.words[1]
    if unit.statuses is not None and status not in unit.statuses:
        return False
    known_unit = info & OLD_MASK == unit.old or info & NEW_MASK == unit.new
    return known_unit and (info >> SUB_CODE_SHIFT & SUB_CODE_MASK) in unit.sub_codes


def _promoted(unit: Unit, info: int) -> bool:
    is_old = info & OLD_MASK == unit.old
    return bool(info & (OLD_PROMOTED if is_old else NEW_PROMOTED))
