"""
Whom the admission policies reach, read from the manifests: healthd's accounts, and pods of gangs that asked for it.

The API server looks for parameters before it asks any condition, and for labels before that. So a parameter that is
missing can hold up every request whose object has the labels, whichever client makes it.
"""

from __future__ import annotations

import pytest

from healthd.core.api import LABEL_GANG, LABEL_RESTARTED
from tests.deploy.manifests import Manifest, of_kind

MUTATING = of_kind("MutatingAdmissionPolicy")
BINDINGS = of_kind("MutatingAdmissionPolicyBinding")
IS_ACCOUNT = [
    f"request.userInfo.username == 'system:serviceaccount:healthd-system:{name}'" for name in of_kind("ServiceAccount")
]
MARKS = {LABEL_RESTARTED, LABEL_GANG}
"""Of a template that healthd has put a hint on, and of a plain pod. Nothing else gives a pod one of these labels."""


@pytest.mark.parametrize("name", of_kind("ValidatingAdmissionPolicy"))
def test_a_policy_that_can_refuse_has_no_parameter_and_asks_first_for_an_account_of_healthd(name: str) -> None:
    policy = of_kind("ValidatingAdmissionPolicy")[name]["spec"]

    assert "paramKind" not in policy
    assert policy["matchConditions"][0]["expression"] in IS_ACCOUNT


@pytest.mark.parametrize("name", of_kind("ValidatingAdmissionPolicyBinding"))
def test_its_binding_looks_for_nothing(name: str) -> None:
    assert set(of_kind("ValidatingAdmissionPolicyBinding")[name]["spec"]) == {"policyName", "validationActions"}


@pytest.mark.parametrize("name", MUTATING)
def test_a_policy_that_changes_pods_refuses_none(name: str) -> None:
    assert MUTATING[name]["spec"]["failurePolicy"] == "Ignore"


@pytest.mark.parametrize("name", BINDINGS)
def test_a_binding_with_a_parameter_reaches_only_pods_whose_makers_asked_for_it(name: str) -> None:
    spec = BINDINGS[name]["spec"]

    assert spec["paramRef"]["parameterNotFoundAction"] == "Allow"
    assert len(_asked(spec, "Exists")) == 1
    assert _asked(spec, "Exists") <= MARKS


def test_a_pod_is_reached_by_one_binding_alone() -> None:
    reached = {mark: [name for name, each in BINDINGS.items() if _reaches(each, mark)] for mark in MARKS}
    of_all = [name for name, each in BINDINGS.items() if _asked(each["spec"], "Exists") and _reaches(each, *MARKS)]

    assert {mark: len(names) for mark, names in reached.items()} == dict.fromkeys(MARKS, 1)
    assert len(of_all) == 1


def _reaches(binding: Manifest, *labels: str) -> bool:
    spec = binding["spec"]
    return _asked(spec, "Exists") <= set(labels) and not _asked(spec, "DoesNotExist") & set(labels)


def _asked(spec: Manifest, operator: str) -> set[str]:
    expressions = spec["matchResources"]["objectSelector"]["matchExpressions"]
    return {each["key"] for each in expressions if each["operator"] == operator}
