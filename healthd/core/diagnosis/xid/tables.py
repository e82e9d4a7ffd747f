"""
The data for judging, decoded once: Xid and SXid catalogues, NVLink decode rules, and which events belong together.

The files are part of the package and name their sources. They are loaded at first use, so that importing costs nothing.
"""

from __future__ import annotations

import pkgutil
from datetime import timedelta
from functools import cache

import msgspec

from healthd.core.api.model import Blame, RepairAction, Severity


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """
    One documented Xid.

    *bucket* and *follow_up* are NVIDIA's words; *tier* is a name in `healthd.core.diagnosis.tiers`, or `decode` (by the
    link's registers) or `driver` (154: by the number of the recovery action).
    """

    code: int
    mnemonic: str
    summary: str
    tier: str
    blame: Blame
    generations: tuple[str, ...] = ()
    """Data-centre generations that still print it; empty for retired or undocumented numbers."""
    bucket: str = ""
    follow_up: str = ""
    recovery_since: str = ""
    """The driver release that pairs it with Xid 154; empty where it does not."""
    reason: str = ""


class SwitchCode(msgspec.Struct, frozen=True, kw_only=True):
    """One documented NVSwitch error; *severity* is `always-fatal`, `fatal`, `non-fatal` or `unknown`."""

    code: int
    mnemonic: str
    summary: str
    severity: str


class DriverRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """One recovery action of Xid 154, by number: labels changed between drivers."""

    number: int
    label: str
    summary: str
    severity: Severity
    action: RepairAction
    quarantines: bool
    clears: bool = False


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of *rules* soon after one of *after* on the same device is a part of that one."""

    rules: frozenset[str]
    after: frozenset[str]
    reason: str


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that *never* turn from faults of the application into suspicion of the device. The limit is policy."""

    never: frozenset[str]
    reason: str


class XidRules(msgspec.Struct, frozen=True, kw_only=True):
    """All that `rules.json` holds."""

    source: str
    group_s: float
    remembers_h: float
    recovery: tuple[DriverRecovery, ...]
    symptoms: tuple[Symptom, ...]
    repeats: Repeats

    @property
    def group(self) -> timedelta:
        """Events on one device closer than this belong together."""
        return timedelta(seconds=self.group_s)

    @property
    def remembers(self) -> timedelta:
        """How long a cleared finding is kept, so that old records do not raise it again."""
        return timedelta(hours=self.remembers_h)

    def recovery_action(self, number: int) -> DriverRecovery | None:
        """What Xid 154 asks for; None for a number that no driver has printed yet."""
        return next((action for action in self.recovery if action.number == number), None)


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """The meaning of any of *bits* in register *word* (1 is the first) of an Xid 74."""

    word: int
    bits: tuple[int, ...]
    outcome: str


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """A decode rule of Xid 144 to 150; see `healthd.core.diagnosis.xid.nvlink`."""

    xid: int
    unit: str
    old: int
    new: int
    outcome: str
    follow_up: str
    statuses: tuple[int, ...] | None = None
    """None: any."""
    sub_codes: tuple[int, ...] = (0,)
    promotable: bool = False


class NvLink(msgspec.Struct, frozen=True, kw_only=True):
    """All that `nvlink.json` holds."""

    source: str
    registers: tuple[Register, ...]
    units: tuple[Unit, ...]


class _Catalogue(msgspec.Struct, frozen=True):
    codes: tuple[Code, ...]


class _SwitchCatalogue(msgspec.Struct, frozen=True):
    codes: tuple[SwitchCode, ...]


@cache
def xid_codes() -> dict[int, Code]:
    """Every documented Xid by number."""
    return {code.code: code for code in msgspec.json.decode(read_data("catalogue.json"), type=_Catalogue).codes}


@cache
def sxid_codes() -> dict[int, SwitchCode]:
    """Every documented SXid by number."""
    return {
        code.code: code for code in msgspec.json.decode(read_data("switch_catalogue.json"), type=_SwitchCatalogue).codes
    }


@cache
def rules() -> XidRules:
    """Windows, symptoms, repeats."""
    return msgspec.json.decode(read_data("rules.json"), type=XidRules)


@cache
def nvlink() -> NvLink:
    """Decode rules of NVLink errors."""
    return msgspec.json.decode(read_data("nvlink.json"), type=NvLink)


def read_data(name: str) -> bytes:
    """The data file *name* of this package. Raises FileNotFoundError when the installation lacks it."""
    data = pkgutil.get_data(__package__, name)
    if data is None:
        raise FileNotFoundError(f"{name} is missing from the installed package {__package__}; install healthd again")
    return data
