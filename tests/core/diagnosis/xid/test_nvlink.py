"""Register words of NVLink errors."""

from __future__ import annotations

import pytest

from healthd.core.diagnosis.klog import LinkFault
from healthd.core.diagnosis.xid.nvlink import decode_unit, tier_of_74, tier_of_link


def fault(*words: int, fatal: bool = False) -> LinkFault:
    return LinkFault(link=4, words=words, unit="UNIT", fatal=fatal)


def old_info(unit: int, *, sub_code: int = 0, link: int = 4, promoted: bool = False) -> int:
    """Word 0 as drivers before R575 fill it."""
    return sub_code << 20 | link << 13 | promoted << 10 | unit


def new_info(unit: int, *, sub_code: int = 0, link: int = 4, promoted: bool = False) -> int:
    """Word 0 as drivers since R575 fill it."""
    return sub_code << 20 | link << 13 | promoted << 7 | unit


@pytest.mark.parametrize(
    ("xid", "info", "status", "unit"),
    [
        (144, old_info(0b0000100001), 0x2, "SAW_MVB"),
        (144, new_info(1), 0x2, "SAW_MVB"),
        (145, old_info(0b0011100010), 0x8, "RLW_SRC_TRACK"),
        (146, new_info(13), 0x4, "TLW_TX/TLW_TX_PIPE1"),
        (147, old_info(0b0110000100), 0x1, "TREX"),
        (149, old_info(0b0111000110, sub_code=33), 0x7, "NETIR_LINK_EVT/NETIR_LINK_DOWN"),
        (150, 0, 0, "MSE_WATCHDOG"),
    ],
)
def test_both_layouts_of_drivers_are_decoded(xid: int, info: int, status: int, unit: str) -> None:
    found = decode_unit(xid, fault(info, status))

    assert found is not None
    assert found.unit == unit


@pytest.mark.parametrize(
    ("xid", "info", "status", "tier"),
    [
        (144, old_info(0b0000100001), 0x4, "record"),
        (144, old_info(0b0000100001), 0x10, "reset"),
        (145, old_info(0b0011100010), 0x8, "await_154"),
        (145, old_info(0b0011000010), 0x1, "record"),
        (145, old_info(0b0011000010, promoted=True), 0x1, "reset"),
        (145, new_info(6, promoted=True), 0x1, "reset"),
        (149, old_info(0b1000100110), 0x2, "record"),
        (149, old_info(0b0111000110, sub_code=4), 0, "reset"),
        (149, old_info(0b0111000110, sub_code=35), 0, "peer"),
        (149, old_info(0b0111000110, sub_code=38), 0, "record"),
    ],
)
def test_the_rule_of_a_unit_gives_the_tier(xid: int, info: int, status: int, tier: str) -> None:
    assert tier_of_link(xid, fault(info, status)) == tier


def test_the_worse_of_rule_and_line_counts() -> None:
    assert tier_of_link(144, fault(old_info(0b0000100001), 0x4, fatal=True)) == "reset"


def test_words_without_a_rule_degrade_unless_the_line_says_fatal() -> None:
    assert tier_of_link(145, fault(old_info(0b1111111111), 0x1)) == "undecided"
    assert tier_of_link(145, fault(old_info(0b1111111111), 0x1, fatal=True)) == "reset"
    assert tier_of_link(145, fault()) == "undecided"
    assert tier_of_link(145, None) == "undecided"


@pytest.mark.parametrize(
    ("words", "tier"),
    [
        ((1 << 4, 0, 0), "hardware"),
        ((1 << 16, 0, 0), "mechanics"),
        ((1 << 16 | 1 << 5, 0, 0), "hardware"),
        ((1 << 23, 0, 0), "record"),
        ((1 << 1, 0, 0), "await_154"),
        ((0, 0, 1 << 16), "reset"),
        ((0, 0, 0, 1 << 18), "reset"),
        ((0, 0, 0, 0, 1 << 22), "hardware"),
        ((0, 0, 0, 0, 1 << 20), "record"),
        ((0, 0, 0, 0, 0), "reset"),
        ((), "reset"),
    ],
)
def test_the_worst_register_bit_of_an_xid_74_counts(words: tuple[int, ...], tier: str) -> None:
    assert tier_of_74(fault(*words)) == tier


def test_an_xid_74_without_registers_is_fatal_as_it_says() -> None:
    assert tier_of_74(None) == "reset"
