"""The page of `healthd status`: from the verdict over the devices to what could not be read."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from healthd.checks import devices
from healthd.checks.judging import SeenNow
from healthd.checks.status import NodeReport, spoken
from healthd.cli.commands.klog import printable
from healthd.cli.terminal.output import console
from healthd.core.api.model import Finding, Severity, Verdict
from healthd.core.diagnosis.readings import NODE

if TYPE_CHECKING:
    from rich.console import RenderableType

PIPE_WIDTH = 160
"""The width in columns without a terminal."""
_COLOURS = {
    Verdict.HEALTHY: "bold green",
    Verdict.DEGRADED: "bold yellow",
    Verdict.UNHEALTHY: "bold red",
    Verdict.UNKNOWN: "bold magenta",
}
_STYLES = {Severity.INFO: "dim", Severity.WARNING: "", Severity.ERROR: "yellow", Severity.FATAL: "red"}


class StatusPrinter:
    """Prints; colours are for terminals alone."""

    def __init__(self) -> None:
        self._console = console(width=None if sys.stdout.isatty() else PIPE_WIDTH)

    def show(self, status: NodeReport, *, clear: bool) -> None:
        """One state; *clear*: in the place of the last one."""
        if clear and self._console.is_terminal:
            self._console.clear()
        for part in _parts(status):
            self._console.print(part, soft_wrap=not self._console.is_terminal)


def _parts(status: NodeReport) -> Iterator[RenderableType]:
    """The page for a person, from the verdict to what could not be read."""
    from rich.text import Text

    yield Text.assemble((f"{status.node} is {status.verdict}", _COLOURS[status.verdict]), f": {status.message}")
    if status.gpus:
        yield _table(_GPU_COLUMNS, [_gpu_cells(gpu) for gpu in status.gpus])
    elif "nvml" not in {unread.source for unread in status.unread}:
        yield Text("no GPU here")
    if status.ports:
        yield _table(_PORT_COLUMNS, [_port_cells(port) for port in status.ports])
    if status.machine:
        yield Text("machine: " + ", ".join(status.machine))
    rows = [(finding, f"since {_age(finding, status.at)}") for finding in status.findings]
    rows += [(seen.finding, _pending(seen)) for seen in status.seen_now]
    explained: set[str] = set()
    for finding, when in rows:
        yield from _finding(finding, when, explain=finding.rule not in explained)
        explained.add(finding.rule)
    for unread in status.unread:
        yield Text.assemble(("not read: ", "magenta"), f"{unread.source}: {unread.why}")


def _finding(finding: Finding, when: str, *, explain: bool) -> Iterator[RenderableType]:
    """*explain*: also print the meaning, which is the same for every device of a rule."""
    from rich.padding import Padding
    from rich.text import Text

    style = "bold red" if finding.quarantines else _STYLES[finding.severity]
    out = ", takes the node out" if finding.quarantines and not finding.shadow else ""
    shadow = ", in shadow" if finding.shadow else ""
    yield Text(f"{finding.severity}{out}{shadow}  {finding.id}  {when}", style=style)
    if explain:
        yield Padding(Text(printable(finding.message)), (0, 0, 0, 4), expand=False)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    kept = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    for at in kept:
        table.add_column(columns[at], overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[at], style="red" if row[at] in _BAD_STATES else "") for at in kept))
    return table


_BAD_STATES = frozenset(
    {"lost", "reset-required", "error", "gone", "silent", "missing", "down", "failed", "pending", "no-manager"}
)
_GPU_COLUMNS = ("gpu", "pci", "name", "state", "°C", "ecc", "remap", "nvlinks", "pcie", "processes", "uuid")
_PORT_COLUMNS = ("port", "pci", "kind", "interface", "rail", "state", "Gb/s")


def _gpu_cells(gpu: devices.GpuInfo) -> tuple[str, ...]:
    width = f"x{gpu.pcie_width:g}" if gpu.pcie_width else ""
    full = f" of x{gpu.pcie_full_width:g}" if gpu.pcie_full_width and gpu.pcie_full_width != gpu.pcie_width else ""
    generation = f"gen{gpu.pcie_generation:g} " if gpu.pcie_generation else ""
    return (
        "-" if gpu.index is None else str(gpu.index),
        gpu.pci,
        gpu.name,
        gpu.state,
        _shown(gpu.temperature_c),
        _shown(gpu.ecc_uncorrected),
        gpu.remap or "",
        "" if gpu.nvlinks is None else f"{gpu.nvlinks_up}/{gpu.nvlinks}",
        f"{generation}{width}{full}",
        _shown(gpu.processes),
        gpu.uuid,
    )


def _port_cells(port: devices.PortInfo) -> tuple[str, ...]:
    rail = "" if port.rail is None else str(port.rail)
    rate = f"{port.rate_gbps:g}" if port.rate_gbps else ""
    return f"{port.device}/{port.port}", port.pci, port.family, port.netdev, rail, port.state, rate


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:g}"


def _age(finding: Finding, now: datetime) -> str:
    times = f", {finding.count} times" if finding.count > 1 else ""
    where = "" if finding.device == NODE or not finding.parts else f" ({', '.join(finding.parts)})"
    return f"{finding.raised_at:%Y-%m-%d %H:%M:%S} UTC, {spoken(now - finding.raised_at)} ago{times}{where}"


def _pending(seen: SeenNow) -> str:
    return f"seen now; a finding once it was so for {spoken(timedelta(seconds=seen.holds_s))}"
