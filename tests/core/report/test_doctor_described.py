"""What the doctor says of a gang whose kind is described by data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from healthd.core.api import ObjectMeta
from healthd.core.config.gang_kinds import KindDescription, PodsDescription, Trap
from healthd.core.report.doctor import Chart, FoundTrap, HintPolicy, Right, examine
from healthd.core.report.doctor.chart import Template
from tests.builders import a_pod

NOTES = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": "pvc://runs/x"}
MARKED = PodsDescription(at="spec.workers", template=("template",))
UNMARKED = PodsDescription(at="status.podSets.*", template=())
RIGHTS = [Right(verb, "runs", "example.com") for verb in ("get", "list", "watch", "patch")]


def kind(pods: PodsDescription = MARKED, **fields: Any) -> KindDescription:
    """Of runs that end."""
    usual = {"api_version": "example.com/v1", "kind": "Run", "plural": "runs", "succeeded": ("Done",)}
    return KindDescription(pods=(pods,), **{**usual, **fields})


def said(description: KindDescription | None = None, *, name: str = "Run", **fields: Any) -> list[str]:
    """Everything that is said of such a gang, with how grave it is."""
    meta = ObjectMeta(name="train", namespace="research", annotations=NOTES)
    usual: Mapping[str, Any] = {"hint_policy": HintPolicy.INSTALLED, "rights": dict.fromkeys(RIGHTS, True), "spec": {}}
    chart = Chart(kind=name, meta=meta, description=description or kind(), **{**usual, **fields})
    return [f"{remark.level}: {remark.what}" for remark in examine(chart)]


def test_nothing_is_said_of_one_in_order() -> None:
    assert said() == []


def test_the_right_to_the_status_is_one_of_those_that_are_needed() -> None:
    versioned = kind(pod_version="status.version")

    assert said(
        versioned, rights={**dict.fromkeys(RIGHTS, True), Right("patch", "runs/status", "example.com"): False}
    ) == ["prevents: the controller may not guard gangs of the kind Run"]


@pytest.mark.parametrize(("prevents", "level"), [(True, "prevents"), (False, "risks")])
def test_a_trap_is_as_grave_as_its_description_says(prevents: bool, level: str) -> None:
    trap = Trap(when="spec.x=y", prevents=prevents, why="it ends", remedy="z")

    assert said(traps=(FoundTrap(trap, "spec.x is y"),)) == [f"{level}: spec.x is y"]


def test_one_that_never_ends_is_noted() -> None:
    assert said(kind(succeeded=())) == ["note: a Run never ends"]


def test_pods_that_a_binding_finds_by_their_own_label_need_no_other() -> None:
    assert said(kind(UNMARKED, name_label="example.com/run", bound_by_name=True), pods=(a_pod("rank-0"),)) == []


@pytest.mark.parametrize("where", ["pods", "parts"])
def test_pods_that_the_hint_would_not_reach_are_found(where: str) -> None:
    labels = {"app": "x"}
    fields: dict[str, dict[str, Any]] = {
        "pods": {"pods": (a_pod("rank-0", labels=labels),)},
        "parts": {"parts": (Template(name="", meta={"labels": labels}, pods={}),)},
    }

    found = said(kind(UNMARKED), **fields[where])

    assert "risks: its pods do not carry the label healthd.dev/gang" in found


def test_pods_that_carry_the_label_get_the_hint() -> None:
    assert said(kind(UNMARKED), pods=(a_pod("rank-0", gang="train"),)) == []


def test_pods_of_a_template_that_healthd_marks_need_no_label() -> None:
    assert said(pods=(a_pod("rank-0"),)) == []


def test_rights_that_are_missing_prevent_a_recovery() -> None:
    rights = {**dict.fromkeys(RIGHTS, True), RIGHTS[3]: False}

    assert said(rights=rights) == ["prevents: the controller may not guard gangs of the kind Run"]


@pytest.mark.parametrize("limit", [None, 6, "0", {}])
def test_a_launcher_that_may_fail_is_no_trap(limit: Any) -> None:
    assert said(name="MPIJob", spec={"runPolicy": {"backoffLimit": limit}}) == []


def test_an_mpijob_whose_launcher_may_not_fail_once_is_found() -> None:
    assert said(name="MPIJob", spec={"runPolicy": {"backoffLimit": 0}}) == ["risks: runPolicy.backoffLimit is 0"]


@pytest.mark.parametrize("policy", [5, "x", [], None])
def test_a_run_policy_of_another_shape_raises_nothing(policy: Any) -> None:
    assert said(name="MPIJob", spec={"runPolicy": policy}) == []
