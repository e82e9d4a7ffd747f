"""
Check `dcgm`: NVIDIA's own diagnostics by `dcgmi diag`, where it is installed and its host engine runs.

The JSON of DCGM 3 (`DCGM GPU Diagnostic`, `gpu_ids`) and of DCGM 4 (`DCGM Diagnostic`, `entity_id`) is searched for
tests with results at any depth. Warnings of libraries may stand before the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from healthd.checks import programs
from healthd.checks.check import CheckContext, CheckOutcome, CheckResult, Figures, failed, passed, skipped

PROGRAM = "dcgmi"
_OUTCOMES = {
    "pass": CheckOutcome.PASS,
    "passed": CheckOutcome.PASS,
    "warn": CheckOutcome.PASS,
    "warning": CheckOutcome.PASS,
    "skip": CheckOutcome.SKIP,
    "skipped": CheckOutcome.SKIP,
    "not run": CheckOutcome.SKIP,
    "notrun": CheckOutcome.SKIP,
    "fail": CheckOutcome.FAIL,
    "failed": CheckOutcome.FAIL,
}
"""An unknown word counts as failed: it is no proof of health."""
_NO_ENGINE = ("unable to connect", "host engine", "connection refused")
_MOST_LISTED = 4


class DiagResult(NamedTuple):
    """One result of one test."""

    test: str
    where: str
    """`GPU 3`, as DCGM numbers them. Empty for the machine."""
    outcome: CheckOutcome
    warnings: str


class DcgmDiag:
    """*level*: 1 takes seconds, 2 about two minutes, 3 about ten."""

    name = "dcgm"
    needs = "dcgmi (DCGM) on the PATH, and a host engine that runs"
    is_deep = True

    def __init__(self, level: int = 1) -> None:
        self._level = level

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped without the program or its host engine."""
        program = programs.find(PROGRAM, context.environ)
        if program is None:
            return skipped(f"{PROGRAM} is not installed")
        try:
            ended = programs.run([program, "diag", "-r", str(self._level), "-j"], context.environ, context.seconds_left)
        except OSError as error:
            return failed(f"{program} cannot be run: {error.strerror}")
        if ended.status is None:
            return failed(f"level {self._level} did not end in time")
        results = list(parse_diag(ended.output))
        if not results:
            return _without_results(ended)
        return _judged(results, self._level)


def parse_diag(output: str) -> Iterator[DiagResult]:
    """Every result in the JSON of `dcgmi diag -j`. None where there is no such JSON."""
    begin, end = output.find("{"), output.rfind("}")
    try:
        document = json.loads(output[begin : end + 1]) if begin >= 0 else None
    except ValueError:
        return
    yield from _tests(document)


def _tests(node: Any) -> Iterator[DiagResult]:
    if isinstance(node, list):
        for each in node:
            yield from _tests(each)
    elif isinstance(node, dict):
        results = node.get("results")
        if isinstance(results, list) and "name" in node:
            yield from (_result(str(node["name"]), one) for one in results if isinstance(one, dict))
        else:
            for each in node.values():
                yield from _tests(each)


def _result(test: str, result: dict[str, Any]) -> DiagResult:
    number = result.get("gpu_ids", result.get("gpu_id", result.get("entity_id")))
    kind = result.get("entity_group", "GPU")
    word = " ".join(str(result.get("status", "")).lower().split())
    warnings = "; ".join(filter(None, (_text(one) for one in _listed(result.get("warnings")))))
    return DiagResult(
        test, "" if number is None else f"{kind} {number}", _OUTCOMES.get(word, CheckOutcome.FAIL), warnings or word
    )


def _listed(warnings: Any) -> list[Any]:
    return warnings if isinstance(warnings, list) else [warnings] if warnings else []


def _text(warning: Any) -> str:
    return str(warning.get("warning", "")) if isinstance(warning, dict) else str(warning)


def _judged(results: list[DiagResult], level: int) -> CheckResult:
    names = sorted({result.test for result in results})
    counts = {outcome: sum(result.outcome is outcome for result in results) for outcome in CheckOutcome}
    figures: Figures = {"node": {"level": level, **{str(outcome): count for outcome, count in counts.items()}}}
    wrong = [f"{one.test} {one.where}: {one.warnings}" for one in results if one.outcome is CheckOutcome.FAIL]
    if wrong:
        more = f"; and {len(wrong) - _MOST_LISTED} more" if len(wrong) > _MOST_LISTED else ""
        return failed("; ".join(wrong[:_MOST_LISTED]) + more, figures)
    if not counts[CheckOutcome.PASS]:
        return skipped("DCGM skipped every test of this level", figures)
    return passed(f"level {level}: {', '.join(names)}", figures)


def _without_results(ended: programs.ProgramResult) -> CheckResult:
    if any(words in ended.output.lower() for words in _NO_ENGINE):
        return skipped(f"DCGM's host engine does not answer: {ended.last_line}")
    return failed(f"it gave no results (status {ended.status}): {ended.last_line}")
