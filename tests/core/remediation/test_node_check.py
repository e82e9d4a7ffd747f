"""The pod that checks a node: its name, its manifest, and a result that always fits and never passes by itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from healthd.core.api import to_wire
from healthd.core.config import parse_duration
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.node.check_pods import NAMESPACE, is_check
from healthd.core.remediation.check_summary import LONGEST, CheckSummary, fitted, read_result, shortfall
from healthd.core.remediation.node_check import CheckOrder, check_pod, plan_of, pod_name
from tests.builders import a_node, a_pod


def an_order(name: str = "gpu-17", **policy: Any) -> CheckOrder:
    return CheckOrder(
        node=a_node(name), attempt=7, check=1, gpus=8, image="healthd:1", policy=RemediationPolicy(**policy)
    )


@pytest.mark.parametrize(
    "node", ["gpu-17", "gpu-17.rack-3.example.com", "n" * 63, "a." * 120 + "a", "ip-10-0-0-1.ec2.internal"]
)
def test_a_name_is_one_of_a_host_and_of_one_check_of_one_node(node: str) -> None:
    name = pod_name(node, 1_764_000_000, 1)

    assert len(name) <= 63
    assert "." not in name
    assert name == pod_name(node, 1_764_000_000, 1)
    others = [
        pod_name(f"{node}x", 1_764_000_000, 1),
        pod_name(node, 1_764_000_001, 1),
        pod_name(node, 1_764_000_000, 2),
    ]
    assert name not in others


def test_nodes_whose_names_differ_by_a_dot_alone_have_pods_of_their_own() -> None:
    assert pod_name("gpu.17", 1, 1) != pod_name("gpu-17", 1, 1)


def test_the_pod_has_no_token_no_volume_and_no_right() -> None:
    spec = to_wire(check_pod(an_order()))["spec"]
    (container,) = spec["containers"]

    assert spec["automountServiceAccountToken"] is False
    assert {"volumes", "hostNetwork", "hostPID", "serviceAccountName"}.isdisjoint(spec)
    assert "env" not in container
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize("timeout", ["1m", "20m", "2h"])
def test_the_check_ends_before_its_pod_is_ended(timeout: str) -> None:
    spec = to_wire(check_pod(an_order(check_timeout=parse_duration(timeout))))["spec"]
    (option,) = [each for each in spec["containers"][0]["command"] if each.startswith("--timeout=")]

    assert 30 <= int(option.removeprefix("--timeout=").removesuffix("s")) < spec["activeDeadlineSeconds"]


def test_a_runtime_class_is_named_only_where_one_is_configured() -> None:
    assert "runtimeClassName" not in check_pod(an_order()).spec
    assert check_pod(an_order(check_runtime_class="nvidia")).spec["runtimeClassName"] == "nvidia"


def test_a_label_alone_makes_no_pod_a_check() -> None:
    labels = {"healthd.dev/node-check": "true"}

    assert not is_check(a_pod("mine", namespace="team-a", labels=labels))
    assert not is_check(a_pod("mine", namespace=NAMESPACE))
    assert is_check(a_pod("mine", namespace=NAMESPACE, labels=labels))


def test_a_gone_node_is_not_checked() -> None:
    assert plan_of(None, None, None, RemediationPolicy(check_by_pod=True)).gpus == 0


def test_a_large_result_is_cut_until_it_fits_and_can_still_be_read() -> None:
    reasons = {f"check-{number}": "\x1b[31m" + "ü" * 10_000 for number in range(12)}
    result = CheckSummary(result="fail", boot_id="b", failed=reasons, skipped=reasons, busy=["x" * 9_000] * 400)

    words = fitted(result)
    read = read_result(words.decode())

    assert len(words) <= LONGEST
    assert read is not None
    assert read.result == "fail"


def test_what_fits_loses_nothing() -> None:
    result = CheckSummary(result="pass", boot_id="b", expected_gpus=8, gpus=8, passed=["inventory", "nccl"])

    assert read_result(fitted(result).decode()) == result
    assert shortfall(result, 8) == ""


@pytest.mark.parametrize("changed", [{"gpus": 7}, {"expected_gpus": 7}, {"passed": ["inventory"]}, {"busy": ["x"]}])
def test_a_pass_that_lacks_anything_is_none(changed: dict[str, object]) -> None:
    result = CheckSummary(result="pass", boot_id="b", expected_gpus=8, gpus=8, passed=["inventory", "nccl"])

    assert shortfall(msgspec.structs.replace(result, **changed), 8) != ""


def test_an_unknown_field_of_a_newer_version_is_left_out() -> None:
    assert read_result('{"result":"fail","since":{"a":[1]}}') == CheckSummary(result="fail")
