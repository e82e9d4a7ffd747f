"""
`healthd rules [PATTERN …]`: every rule by which a node is judged, and what follows. With `--config` as that file has
them: its limits, tiers and shadows, and the rules of the site.

`--reference DIR` writes the pages `docs/findings/` from the same rows. Exit codes: 0 found, 1 no rule has such a name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from healthd.cli.errors import UserError
from healthd.cli.rules.reference import consequence, reference
from healthd.cli.terminal.output import complain, console
from healthd.core.diagnosis.rule_reference import Mode, RuleRow, all_rules, rules_under

NOT_FOUND = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="names of rules, such as 'ib-*' (default: all)")
    what = "as this configuration has them, the site's own among them (judge.rules)"
    parser.add_argument("--config", type=Path, metavar="FILE", help=what)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object a line")
    pages = "write one page for each source into this folder (Markdown); docs/findings/ is made so"
    form.add_argument("--reference", type=Path, metavar="DIR", help=pages)


def run(args: argparse.Namespace) -> int:
    """List them."""
    rows = [row for row in _rules(args.config) if not args.patterns or _is_meant(row, args.patterns)]
    if not rows:
        complain(f"healthd: no rule has a name like {' or '.join(map(repr, args.patterns))}")
        return NOT_FOUND
    if args.json:
        sys.stdout.writelines(f"{msgspec.json.encode(row).decode()}\n" for row in rows)
    elif args.reference:
        _write(args.reference, rows)
    else:
        _show(rows)
    return 0


def _rules(config: Path | None) -> Iterable[RuleRow]:
    if config is None:
        return all_rules()
    from healthd.cli.configuration.reading import load  # imported here: without --config the list needs no YAML

    return rules_under(load(config).judge)


def _is_meant(row: RuleRow, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(row.rule, pattern) or fnmatchcase(pattern, row.rule) for pattern in patterns)


def _write(folder: Path, rows: Sequence[RuleRow]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in reference(rows).items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror}") from error


def _show(rows: Sequence[RuleRow]) -> None:
    from rich.table import Table  # imported here: programs need no terminal library

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("rule", "what", "threshold", "what follows"):
        table.add_column(column, overflow="fold")
    for row in rows:
        worst = consequence(row).replace("**", "").replace("`", "")
        acts = row.quarantines and row.mode is Mode.ON
        table.add_row(row.rule, row.what, row.threshold, worst, style="red" if acts else "")
    console(highlight=True).print(table)
