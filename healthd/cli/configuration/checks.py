"""What a value of the configuration must be beyond its type: the grammar of a text, and keys that must agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from healthd.core.api.locations import parse_allowed
from healthd.core.diagnosis.signals.tables import check_rule, known_rules, parse_limit
from healthd.core.diagnosis.site_rules import check_reading, check_site_rule, check_tier, parse_pattern, parse_tier
from healthd.core.recovery.nodes.foreign_signs import check_name, parse_row
from healthd.telemetry.address import parse_address


def _check_tier(text: str) -> None:
    from healthd.core.diagnosis.rule_reference import check_tier_of  # as below

    check_tier_of(*parse_tier(text))


def _check_reading(name: str) -> None:
    check_reading(name, (rule.reads for rule in known_rules().values()))


def _check_pattern(pattern: str) -> str:
    from healthd.core.diagnosis.rule_reference import (
        check_pattern,  # imported here: without a pattern, the rules are not loaded
    )

    return check_pattern(pattern)


SOURCES = (
    *("clock", "dcgm", "disk", "edac", "ethernet", "ethernet-counters", "ethtool", "filesystem", "host", "infiniband"),
    *("infiniband-counters", "infiniband-virtual", "nvml", "nvml-pulse", "pcie", "pcie-advice", "pcie-aer"),
    *("services", "thermal"),
)
"""The sources of readings. Their modules are not imported for it: a controller has the same file, and no probe."""
_VARIABLE = re.compile(r"\$(?:\w+|\{\w+\})", re.ASCII)


def _check_source(name: str) -> None:
    if name not in SOURCES:
        raise ValueError(f"there is no source {name!r}; the sources are {', '.join(SOURCES)}")


def _check_page(url: str) -> None:
    """What an environment variable stands for is known on the node alone."""
    from healthd.probes.dcgm.web import parse_url  # as below
    from healthd.probes.errors import CannotRead

    if _VARIABLE.match(url):
        return
    try:
        parse_url(_VARIABLE.sub("1", re.sub(rf"\[{_VARIABLE.pattern}\]", "1", url)))
    except CannotRead:
        raise ValueError(f"{url!r} is no web address; write it as http://HOST:PORT/PATH") from None


def _check_service(url: str) -> None:
    from healthd.alerts.addresses import check_service  # as below

    check_service(url)


CHECKS: dict[str, Callable[[str], object]] = {
    "alerts.sinks.urls": _check_service,
    "checkpoints.allowed": parse_allowed,
    "http.address": parse_address,
    "http.probe_address": parse_address,
    "web.address": parse_address,
    "probes.dcgm_url": _check_page,
    "probes.off": _check_source,
    "foreign.off": check_name,
    "foreign.rows": parse_row,
    "judge.shadow": _check_pattern,
    "judge.off": check_rule,
    "judge.limits": parse_limit,
    "judge.tiers": _check_tier,
    "judge.rules.message": parse_pattern,
    "judge.rules.reading": _check_reading,
    "judge.rules.tier": check_tier,
}
"""Keys whose text, or each item of it, has its own grammar."""


def _check_kind(kind: Any) -> None:
    from healthd.gangs.kinds.check import check_description  # as above

    check_description(kind)


def _check_kinds(policy: Any) -> None:
    from healthd.gangs import ADAPTERS  # as above
    from healthd.gangs.kinds import SHIPPED
    from healthd.gangs.kinds.check import check_names

    check_names(policy, [each.name for each in SHIPPED], ADAPTERS)


def _check_remediation(policy: Any) -> None:
    from healthd.core.remediation.hands.shipped import check_names  # as above

    check_names(policy.hands, policy.at_once, None if policy.hands_file else ())


def _check_web(policy: Any) -> None:
    from healthd.controller.web.exposure import check_exposure  # as above

    check_exposure(policy)


CHECKS_OF_SECTIONS: dict[str, Callable[[Any], object]] = {
    "gangs": _check_kinds,
    "gangs.kinds": _check_kind,
    "judge.rules": check_site_rule,
    "remediation": _check_remediation,
    "web": _check_web,
}
"""Sections whose keys must be consistent."""

NAMED_ONCE = frozenset({"alerts.sinks", "judge.limits", "judge.rules"})
"""Lists whose items have a name each: the key `name`, or the first word of a text."""
