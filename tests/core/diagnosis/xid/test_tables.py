"""The data: complete, consistent, and with its sources named."""

from __future__ import annotations

from healthd.core.api.model import Blame, RepairAction
from healthd.core.diagnosis.tiers import all_tiers, tier
from healthd.core.diagnosis.xid.tables import nvlink, rules, sxid_codes, xid_codes

DECODED = {"decode", "driver"}


def test_every_documented_code_is_there_once() -> None:
    assert sorted(xid_codes()) == list(range(1, 177))
    assert len(sxid_codes()) == 400


def test_every_tier_that_is_named_exists() -> None:
    known = set(all_tiers())

    assert {code.tier for code in xid_codes().values()} <= known | DECODED


def test_every_tier_and_rule_says_why() -> None:
    assert all(one.reason for one in all_tiers().values())
    assert all(symptom.reason for symptom in rules().symptoms)
    assert rules().repeats.reason


def test_sources_are_named() -> None:
    assert "nvml.h" in rules().source
    assert "NVIDIA" in nvlink().source


def test_faults_of_the_application_never_quarantine_by_themselves() -> None:
    names = {code.tier for code in xid_codes().values() if code.blame is Blame.APPLICATION}

    assert not any(tier(name).quarantines for name in names)


def test_numbers_without_published_advice_never_quarantine() -> None:
    assert not any(tier(name).quarantines for name in ("unused", "undecided", "unknown"))


def test_only_what_quarantines_or_needs_a_reset_stands_for_ever() -> None:
    lasting = {one.tier for one in all_tiers().values() if not one.fades_h}

    assert all(tier(name).quarantines or tier(name).action is RepairAction.RESET_GPU for name in lasting)


def test_recovery_actions_have_one_meaning_each() -> None:
    numbers = [action.number for action in rules().recovery]

    assert numbers == sorted(set(numbers))
    assert [action.number for action in rules().recovery if action.clears] == [0]


def test_symptoms_name_rules_that_exist() -> None:
    names = {f"xid-{code}" for code in xid_codes()} | {"gpu-lost"}

    assert all(symptom.rules | symptom.after <= names for symptom in rules().symptoms)


def test_every_nvlink5_code_can_be_decoded() -> None:
    assert {unit.xid for unit in nvlink().units} == set(range(144, 151))
    assert {unit.outcome for unit in nvlink().units} == {"ignore", "reset", "await_154"}
