"""What the rules about NVML say of readings, and what they leave alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.diagnosis.readings import NODE, Reading
from healthd.core.diagnosis.signals.gpus.nvml import RULES, XIDS
from healthd.core.diagnosis.signals.rule import Below
from healthd.core.diagnosis.tiers import tier
from healthd.core.diagnosis.xid import xid_codes
from healthd.probes.nvml.child import fields
from tests.core.diagnosis.signals.engine_driver import MINUTE, EngineDriver

GPU = "0000:3b:00.0"
Values = list[float | str]


def reported_rules(
    name: str,
    values: Values,
    *,
    device: str = GPU,
    part: str = "",
    after: timedelta = MINUTE,
    beside: tuple[str, float] | None = None,
) -> set[str]:
    """The rules that are bad after these values of one reading, with a constant one beside it."""
    bench = EngineDriver(*RULES)
    bad = []
    for value in values:
        others = [Reading(device, f"nvml.{beside[0]}", beside[1], part)] if beside else []
        bad = bench.sample(Reading(device, f"nvml.{name}", value, part), *others, after=after, source="nvml")
    return {one.rule.name.removeprefix("nvml-") for one in bad}


@pytest.mark.parametrize(
    ("name", "good", "bad", "rules"),
    [
        ("state", ["ok"], ["lost", "lost"], {"gpu-lost"}),
        ("state", ["ok"], ["reset-required"] * 2, {"reset-required"}),
        ("state", ["ok"], ["error"] * 2, {"gpu-error"}),
        ("listed", ["yes"], ["no"] * 2, {"gpu-missing"}),
        ("gpus.unreadable", [0], [1, 1], {"gpu-unreadable"}),
        ("state", ["ok"], ["lost", "ok"] * 3, {"gpu-flaps"}),
        ("listed", ["yes"], ["no", "yes"] * 3, {"gpu-listing-flaps"}),
        ("recovery_action", [0], [8], {"wants-unknown"}),
        ("inforom", ["valid"], ["corrupted"], {"inforom-corrupted"}),
        ("responds", ["yes"], ["no"], {"hangs"}),
        ("row_remap.failure", [0], [1], {"row-remap-failure"}),
        ("row_remap.pending", [0], [1], {"row-remap-pending"}),
        ("bank_remap.pending", [0], [1], {"bank-remap-pending"}),
        ("row_remap.banks.none", [0], [1], {"row-remap-exhausted"}),
        ("row_remap.uncorrected", [511], [512], {"row-remaps"}),
        ("retired.pending", [0], [1], {"page-retirement-pending"}),
        ("retired.uncorrected", [59], [60], {"pages-retired"}),
        ("repair.channel_pending", [0], [1], {"channel-repair-pending"}),
        ("repair.tpc_pending", [0], [1], {"tpc-repair-pending"}),
        ("ecc.uncorrected", [0], [1], {"ecc-uncorrected", "ecc-uncorrected-before"}),
        ("ecc.sram.threshold", [0], [1], {"sram-threshold"}),
        ("ecc.corrected", [7, 1_000_006], [1_000_007], {"ecc-corrected"}),
        ("recovery_action", [0], [1], {"wants-reset"}),
        ("recovery_action", [0], [4], {"wants-reset"}),
        ("recovery_action", [0], [6], {"wants-reset"}),
        ("recovery_action", [0], [2], {"wants-reboot"}),
        ("recovery_action", [0], [7], {"wants-reboot"}),
        ("recovery_action", [0], [3], {"wants-drain"}),
        ("recovery_action", [0], [5], {"wants-imex"}),
        ("nvlink.up", [1], [0, 0], {"nvlink-down"}),
        ("nvlink.replay", [5, 14], [15], {"nvlink-replays"}),
        ("nvlink.recovery", [5, 14], [15], {"nvlink-recoveries"}),
        ("nvlink.crc", [0, 59_999], [60_000], {"nvlink-crc"}),
        ("nvlink.recovery_failed", [3], [4], {"nvlink-recovery-failed"}),
        ("nvlink.recovery_events", [0, 9], [10], {"nvlink-recovery-events"}),
        ("nvlink.effective_ber", [9e-7], [1e-6], {"nvlink-ber"}),
        ("nvlink.integrity_error", [0, 9], [10], {"nvlink-integrity"}),
        ("fabric.state", ["completed"], ["in-progress"] * 6, {"fabric-not-ready"}),
        ("fabric.state", ["completed"], ["not-started"] * 6, {"fabric-not-ready"}),
        ("fabric.status", [0], [999, 999], {"fabric-failed"}),
        ("fabric.health", ["healthy"], ["unhealthy"] * 2, {"fabric-unhealthy"}),
        ("fabric.health", ["healthy"], ["limited-capacity"] * 2, {"fabric-limited"}),
        ("fabric.degraded_bandwidth", ["no"], ["yes"] * 2, {"fabric-bandwidth"}),
        ("fabric.route_unhealthy", ["no"], ["yes"] * 2, {"fabric-route"}),
        ("fabric.access_timeout_recovery", ["no"], ["yes"] * 11, {"fabric-timeout"}),
        ("fabric.configuration", ["correct", "no-partition"], ["too-few-nvlinks"] * 2, {"fabric-configuration"}),
        ("pcie.width", [16], [8] * 6, {"pcie-width-fell"}),
        ("pcie.replay", [1000, 1309], [1310], {"pcie-replays"}),
        ("pcie.fatal", [2], [3], {"pcie-fatal"}),
        ("pcie.non_fatal", [0, 9], [10], {"pcie-non-fatal"}),
        ("throttled.hw-thermal", [0, 359], [360], {"thermal-slowdown"}),
        ("throttle.hw-thermal", ["no"], ["yes"] * 7, {"thermal-slowdown-now"}),
        ("throttled.power-brake", [0, 359], [360], {"power-brake"}),
        ("throttle.power-brake", ["no"], ["yes"] * 7, {"power-brake-now"}),
        ("temperature", [93, 93], [94, 94], {"temperature"}),
        ("temperature.margin", [1, 40], [0, 0], {"no-thermal-margin"}),
        *((f"xid.{code}", [0], [1], {f"xid-{code}"}) for code in XIDS),
    ],
)
def test_each_rule_names_what_it_is_about_and_nothing_else(
    name: str, good: Values, bad: Values, rules: set[str]
) -> None:
    assert reported_rules(name, good) == set()
    assert reported_rules(name, good + bad) == rules


def test_fewer_than_expected() -> None:
    expected = ("gpus.expected", 8)

    assert reported_rules("gpus", [8, 8, 8], device=NODE, beside=expected) == set()
    assert reported_rules("gpus", [7, 7], device=NODE, beside=expected) == {"too-few-gpus"}
    assert reported_rules("gpus", [7, 7], device=NODE) == set()


def test_fewer_links_than_peers_only_after_ten_minutes() -> None:
    peers = ("nvlink.active.peers", 18)

    assert reported_rules("nvlink.active", [18] * 20, beside=peers) == set()
    assert reported_rules("nvlink.active", [17] * 9, beside=peers) == set()
    assert reported_rules("nvlink.active", [17] * 11, beside=peers) == {"nvlink-fewer-than-peers"}


def test_a_link_that_was_narrow_from_the_beginning() -> None:
    most = ("pcie.width.most", 16)

    assert reported_rules("pcie.width", [16] * 10, beside=most) == set()
    assert reported_rules("pcie.width", [8] * 6, beside=most) == {"pcie-width"}


def test_each_rule_is_tried_here() -> None:
    marks = test_each_rule_names_what_it_is_about_and_nothing_else.pytestmark  # type: ignore[attr-defined]  # by pytest
    tried = set().union(*(case[3] for case in marks[0].args[1]))
    compared = {rule.name.removeprefix("nvml-") for rule in RULES if isinstance(rule.test, Below) and rule.test.other}

    assert {rule.name.removeprefix("nvml-") for rule in RULES} == tried | compared


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("state", ["ok", "lost", "ok"]),
        ("listed", ["yes", "no", "yes"]),
        ("nvlink.up", [0, 0, 0, 0]),
        ("nvlink.up", [1, 0, 1, 1]),
        ("pcie.generation", [5, 1, 1, 1, 1, 1, 1]),
        ("pcie.width", [16, 8, 16, 16]),
        ("throttle.hw-slowdown", ["yes"] * 20),
        ("throttle.power-cap", ["yes"] * 20),
        ("throttle.sw-thermal", ["yes"] * 20),
        ("throttle.idle", ["yes"] * 20),
        ("throttle.hw-thermal", ["yes", "no"] * 10),
        ("throttled.power-brake", [1e6, 1e6 + 60, 1e6 + 70]),
        ("ecc.corrected", [40_000_000, 40_000_100]),
        ("ecc.uncorrected.ever", [3, 3]),
        ("row_remap.corrected", [0, 20]),
        ("fabric.state", ["in-progress"] * 4 + ["completed"]),
        ("nvlink.replay", [1_000_000, 1_000_000]),
        ("pcie.replay", [0, 30, 60, 90]),
        ("temperature", [90] * 10),
        ("xid.31", [0, 5]),
        ("xid.79", [4, 4]),
    ],
)
def test_what_healthy_machines_do_is_no_fault(name: str, values: Values) -> None:
    assert reported_rules(name, values) == set()


def test_a_gpu_that_is_reset_by_hand_is_not_lost() -> None:
    short = timedelta(seconds=10)

    assert reported_rules("state", ["ok", "lost", "reset-required", "lost", "ok"], after=short) == set()
    assert reported_rules("state", ["ok", "lost", "lost", "lost", "lost"], after=short) == {"gpu-lost"}


CERTAIN = {
    "nvml-gpu-lost",
    "nvml-reset-required",
    "nvml-row-remap-failure",
    "nvml-wants-reset",
    "nvml-wants-reboot",
    "nvml-wants-drain",
}


def test_only_what_the_driver_itself_gives_up_takes_a_node_out() -> None:
    out = {rule.name for rule in RULES if tier(rule.tier).quarantines and not rule.name.startswith("nvml-xid-")}

    assert out == CERTAIN


def test_an_xid_event_weighs_as_much_as_the_kernels_line() -> None:
    by_code = {code.code: code.tier for code in xid_codes().values()}
    tiers = {code: next(rule.tier for rule in RULES if rule.name == f"nvml-xid-{code}") for code in XIDS}

    assert tiers == {code: "serious" if by_code[code] == "decode" else by_code[code] for code in XIDS}


def test_every_xid_that_takes_a_node_out_has_a_rule() -> None:
    certain = {code.code for code in xid_codes().values() if code.tier not in {"decode", "driver"}}
    certain = {code.code for code in xid_codes().values() if code.code in certain and tier(code.tier).quarantines}

    assert certain <= set(XIDS)


def test_names_are_of_one_rule_each() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_every_reading_that_a_rule_is_about_is_one_that_the_probe_gives() -> None:
    by_number = fields.VITAL | fields.MORE | fields.LINK_VITAL | fields.LINK_MORE
    given = set(by_number.values())
    given |= {f"nvml.throttle.{why}" for why in fields.THROTTLE.values()}
    given |= {f"nvml.fabric.{what}" for what in (*fields.FABRIC_MASK, "state", "status", "health", "configuration")}
    others = {rule.reads for rule in RULES if not rule.reads.startswith("nvml.xid.")} - given

    assert others == {
        "nvml.state",
        "nvml.listed",
        "nvml.responds",
        "nvml.gpus",
        "nvml.gpus.unreadable",
        "nvml.inforom",
        "nvml.ecc.sram.threshold",
        "nvml.nvlink.up",
        "nvml.nvlink.active",
        "nvml.pcie.width",
        "nvml.repair.channel_pending",
        "nvml.repair.tpc_pending",
        "nvml.row_remap.banks.none",
        "nvml.temperature",
        "nvml.temperature.margin",
    }
