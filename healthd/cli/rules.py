"""
`healthd rules [PATTERN …]`: every rule by which a node is judged, and what follows. With `--config` as that file has
them: its limits, tiers and shadows, and the rules of the site.

Also writes `docs/findings.md`, from the same rows. Exit codes: 0 found, 1 no rule has such a name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path

import msgspec

from healthd.cli.terminal import complain, console
from healthd.core.diagnosis.rule_reference import KERNEL_LOG, Mode, Outcome, RuleRow, all_rules, rules_under

NOT_FOUND = 1

_HEAD = """\
# Findings

<!-- Written by `make docs` from the rules themselves (`healthd rules --reference`). -->

Every rule by which healthd judges a node. A finding is named `<device>/<rule>`. What it says of the node:

| severity | the node is |
|---|---|
| `info` | healthy: worth an event and a metric |
| `warning`, `error` | degraded, but for a fault of the application: a person should look; work goes on |
| **takes the node out** | unhealthy: it is cordoned, within the budget, and gangs are restarted elsewhere |

**How findings end.** Those of the kernel log end by a repair, by the reset or reboot that they ask for, or fade when
they never took the node out. Those of counters and states are watched: they end when what they read has been good for
long enough, and for twice as long each time that they came back. What cannot be read is unknown, and never unhealthy.

**One fault, one finding.** The kernel log, NVML and DCGM may tell of the same fault of the same device: then there is
one finding, with what each of them saw as its evidence.

**To change them**: `judge.off` leaves rules out, `judge.limits` gives them other limits, `judge.tiers` another
consequence, and `judge.shadow` lets them say what they would do without doing it ([configuration](configuration.md)).
`judge.rules` adds your own ([klog](klog.md#rules-of-your-own)). `healthd rules 'ib-*'` shows some of them.
"""
_COLUMNS = ("Rule", "What", "Reads", "Threshold", "What follows", "Blame", "From")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="names of rules, such as 'ib-*' (default: all)")
    what = "as this configuration has them, the site's own among them (judge.rules)"
    parser.add_argument("--config", type=Path, metavar="FILE", help=what)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object a line")
    form.add_argument("--reference", action="store_true", help="print the page docs/findings.md (Markdown)")


def run(args: argparse.Namespace) -> int:
    """List them."""
    rows = [row for row in _rules(args.config) if not args.patterns or _is_meant(row, args.patterns)]
    if not rows:
        complain(f"healthd: no rule has a name like {' or '.join(map(repr, args.patterns))}")
        return NOT_FOUND
    if args.json:
        sys.stdout.writelines(f"{msgspec.json.encode(row).decode()}\n" for row in rows)
    elif args.reference:
        sys.stdout.write(reference(rows))
    else:
        _show(rows)
    return 0


def _rules(config: Path | None) -> Iterable[RuleRow]:
    if config is None:
        return all_rules()
    from healthd.cli.config import load  # imported here: without --config the list needs no YAML

    return rules_under(load(config).judge)


def reference(rows: Iterable[RuleRow]) -> str:
    """The page, as Markdown."""
    return "\n".join([_HEAD, *_sections(rows)])


def _is_meant(row: RuleRow, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(row.rule, pattern) or fnmatchcase(pattern, row.rule) for pattern in patterns)


def _sections(rows: Iterable[RuleRow]) -> Iterator[str]:
    for source, group in groupby(rows, key=lambda row: row.source):
        yield from (f"## {source[0].upper() + source[1:]}", "")
        yield from (f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|")
        yield from (f"| {' | '.join(map(_cell, _cells(row)))} |" for row in group)
        yield ""


def _cells(row: RuleRow) -> tuple[str, ...]:
    reads = row.reads if row.source == KERNEL_LOG else f"`{row.reads}`"
    follows = _consequence(row)
    advice = f" {row.advice}" if row.advice else ""
    return f"`{row.rule}`", row.what, reads, row.threshold, follows + "." + advice, row.blame.value, row.origin


def _consequence(row: RuleRow) -> str:
    return _MODES[row.mode] + "; ".join(map(_follows, row.outcomes))


_MODES = {Mode.ON: "", Mode.SHADOW: "in shadow: ", Mode.OFF: "off: "}


def _follows(outcome: Outcome) -> str:
    action = outcome.action.value.replace("_", " ")
    does = f"**takes the node out**, {action}" if outcome.quarantines else f"`{outcome.severity}`, {action}"
    return f"{outcome.when}: {does}" if outcome.when else does


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _show(rows: Sequence[RuleRow]) -> None:
    from rich.table import Table  # imported here: programs need no terminal library

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("rule", "what", "threshold", "what follows"):
        table.add_column(column, overflow="fold")
    for row in rows:
        worst = _consequence(row).replace("**", "").replace("`", "")
        acts = row.quarantines and row.mode is Mode.ON
        table.add_row(row.rule, row.what, row.threshold, worst, style="red" if acts else "")
    console(highlight=True).print(table)
