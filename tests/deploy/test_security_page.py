"""The page that people read about rights names tests and policies that exist."""

from __future__ import annotations

from tests.deploy.attacks import with_table
from tests.deploy.manifests import ROOT, of_kind
from tests.docs.page import is_test, named_tests

PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_test_that_it_names_exists() -> None:
    named = named_tests(PAGE)

    assert len(named) > 8
    assert [each for each in named if not is_test(*each)] == []


def test_every_policy_and_account_that_is_shipped_is_on_it() -> None:
    policies = [*of_kind("ValidatingAdmissionPolicy"), "healthd-controller-plain-pods"]

    assert [name for name in policies if name not in PAGE] == []


def test_its_table_of_attacks_is_that_of_the_tests() -> None:
    assert with_table(PAGE) == PAGE, "run `make docs`"
