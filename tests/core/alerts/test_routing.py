"""Which service gets what: a small table."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.core.alerts.delivery import NOTHING
from healthd.core.alerts.routing import runbook_url, team_of, wants
from healthd.core.api.incidents import Severity
from healthd.core.config import AlertsPolicy, TeamPolicy
from tests.builders import a_sink_policy
from tests.core.alerts.problems import an_incident

PAGES = (Severity.PAGE,)


@pytest.mark.parametrize(
    ("route", "incident", "gets"),
    [
        ({}, {}, True),
        ({"severities": PAGES}, {"severity": Severity.NOTICE}, False),
        ({"namespaces": ("vision-*",)}, {"namespace": "vision-1"}, True),
        ({"namespaces": ("vision-*",)}, {"namespace": "nlp"}, False),
        ({"namespaces": ("*",)}, {"namespace": ""}, False),
        ({"labels": ("cause=node",)}, {"labels": {"cause": "node"}}, True),
        ({"labels": ("cause=node", "domain=r7")}, {"labels": {"cause": "node"}}, False),
    ],
)
def test_a_service_gets_what_fits_all_its_filters(route: dict[str, Any], incident: dict[str, Any], gets: bool) -> None:
    assert wants(a_sink_policy("chat", **route), an_incident(**incident), NOTHING) is gets


def test_the_first_team_that_names_a_namespace_has_it() -> None:
    teams = (TeamPolicy(name="vision", namespaces=("vision-*",)), TeamPolicy(name="rest", namespaces=("*",)))
    policy = AlertsPolicy(teams=teams, default_team="platform")

    assert [team_of(each, policy) for each in ("vision-1", "nlp", "")] == ["vision", "rest", "platform"]


def test_a_runbook_has_an_address_where_the_base_is_known() -> None:
    incident = an_incident(runbook="no-spare")

    assert runbook_url("https://wiki/healthd/", incident) == "https://wiki/healthd/no-spare"
    assert runbook_url("", incident) == ""
