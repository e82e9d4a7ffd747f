"""The shipped rules with time running faster, so that a test need not wait for an hour."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests import quick_yaml
from tests.grafana.promtool import FILES

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPANS = re.compile(r"(\[|\boffset )((?:\d+[smhd])+)")
"""Ranges and offsets in an expression. Numbers of seconds that it compares with are left: a test sets times back."""


def faster_rules(folder: Path, factor: float) -> list[Path]:
    """Copies of all rule files whose spans (`for`, `keep_firing_for`, ranges, offsets) are *factor* times shorter."""
    made = []
    for file in FILES:
        content = quick_yaml.load(file.read_text())
        for group in content["groups"]:
            group.pop("interval", None)
            group["rules"] = [_faster(rule, factor) for rule in group["rules"]]
        made.append(folder / file.name)
        made[-1].write_text(yaml.safe_dump(content))
    return made


def _faster(rule: dict[str, Any], factor: float) -> dict[str, Any]:
    spans: dict[str, Any] = {key: _shorter(rule[key], factor) for key in ("for", "keep_firing_for") if key in rule}
    expr = _SPANS.sub(lambda found: found[1] + _shorter(found[2], factor), rule["expr"])
    return {**rule, **spans, "expr": expr}


def _shorter(span: str, factor: float) -> str:
    """`1m30s` by 60: `1500ms`."""
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+)([smhd])", span))
    return f"{round(1000 * seconds / factor)}ms"
