"""Check `nccl`: NVIDIA's `all_reduce_perf` over all GPUs of the machine gives right sums, where it is installed."""

from __future__ import annotations

import re
from typing import NamedTuple

from healthd.checks import programs
from healthd.checks.check import CheckContext, CheckResult, failed, passed, skipped

PROGRAMS = ("all_reduce_perf", "all_reduce_perf_mpi")
"""Its names in nccl-tests and its packages."""
SIZES = ("-b", "8M", "-e", "256M", "-f", "4")
_WRONG = re.compile(r"# Out of bounds values : (?P<count>\d+) (?P<word>\w+)")
_SPEED = re.compile(r"# Avg bus bandwidth\s*: (?P<gbps>[\d.]+)")


class Summary(NamedTuple):
    """The last lines of nccl-tests: how many sums were wrong, and GB/s over all sizes. None: not reported."""

    wrong: int | None
    gbps: float | None


class Nccl:
    """A wrong sum, an error or a hang fails it. The required speed depends on the machine, so it is only reported."""

    name = "nccl"
    needs = "all_reduce_perf (nccl-tests) on the PATH"
    is_deep = True

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped without the program or a GPU."""
        program = next((found for name in PROGRAMS if (found := programs.find(name, context.environ))), None)
        count = len(context.usable)
        if program is None:
            return skipped("all_reduce_perf is not installed")
        if not count:
            return skipped("there is no GPU that the driver calls well")
        try:
            ended = programs.run([program, *SIZES, "-g", str(count), "-c", "1"], context.environ, context.seconds_left)
        except OSError as error:
            return failed(f"{program} cannot be run: {error.strerror}")
        return _judged(ended, count)


def parse_summary(output: str) -> Summary:
    """The summary at the end of nccl-tests' output."""
    wrong, speed = _WRONG.search(output), _SPEED.search(output)
    return Summary(int(wrong["count"]) if wrong else None, float(speed["gbps"]) if speed else None)


def _judged(ended: programs.ProgramResult, count: int) -> CheckResult:
    summary = parse_summary(ended.output)
    figures: dict[str, dict[str, float | str]] = {"node": {"gpus": count}}
    if summary.gbps is not None:
        figures["node"]["bus_gbps"] = summary.gbps
    if summary.wrong:
        return failed(f"{summary.wrong} sums over {count} GPUs are wrong", figures)
    if ended.status is None:
        return failed("it did not end in time: a GPU or a link between GPUs may hang", figures)
    if ended.status or summary.wrong is None:
        return failed(f"it ended with status {ended.status}: {ended.last_line}", figures)
    return passed(f"sums over {count} GPUs are right", figures)
