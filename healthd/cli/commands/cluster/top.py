"""
`healthd top`: a live view of a cluster or of a run. What needs a person is at the top.

A cluster is watched, so a view costs the API server one list of each kind and then only what changes. A run is read
from its state. Without a terminal one picture is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from healthd.cli.commands.cluster import gangs
from healthd.cli.errors import UserError
from healthd.cli.target.target import Target, add_target_arguments, open_target
from healthd.cli.terminal.output import console
from healthd.clock import SystemClock
from healthd.cluster.port import ClusterError, Forbidden, NotFound
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import Informers, read_everything
from healthd.controller.cache.kind_checks import MATCHES_NOTHING, MUST_HAVE
from healthd.core.api import RESOURCES
from healthd.core.api.model import ENDED
from healthd.core.config import LogFormat, LogLevel
from healthd.core.recovery.gang import Root
from healthd.core.recovery.terms import KUBERNETES, ONE_SERVER
from healthd.core.report.listing import fleet, recoveries
from healthd.core.report.listing.gangs import COLUMNS, GangRow, cells
from healthd.core.report.listing.recoveries import RecoveryRow
from healthd.core.report.listing.table import lines_of
from healthd.gangs.completed import completed
from healthd.gangs.kinds import ALL
from healthd.telemetry.logs import configure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

EVERY = 1.0
"""Seconds between two pictures."""
EVERY_BELOW = 5.0
"""The same on a terminal that cannot move its cursor: there each picture is below the last one."""
ENDED_SHOWN = 5
"""Recoveries that have ended, of which so many are shown: the newest."""


class FleetView(NamedTuple):
    """What a picture shows. *trouble*: why *state* may be out of date; None if it is not."""

    state: ClusterState
    roots: Sequence[Root]
    """All gangs, with what their other objects say."""
    trouble: str | None = None


class FleetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The view for programs."""

    name: str
    at: datetime
    trouble: str | None
    counts: dict[str, Any]
    """The fields of `FleetSummary`."""
    active: list[RecoveryRow]
    """Recoveries in progress."""
    ended: list[RecoveryRow]
    """The newest of the others."""
    gangs: list[GangRow]


Read = Callable[[], Awaitable[FleetView]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd top`."""
    parser.epilog = "Ctrl-C ends it. `healthd gangs` and `healthd recoveries` have all rows, for programs, too."
    add_target_arguments(parser)
    form = "wide: all columns; json: one picture as an object"
    parser.add_argument("-o", "--output", choices=["table", "wide", "json"], default="table", help=form)
    parser.add_argument("--once", action="store_true", help="print one picture and end")


def run(args: argparse.Namespace) -> int:
    """Show the view until Ctrl-C. Raises UserError."""
    configure(LogFormat.JSON, LogLevel.ERROR, io.StringIO())  # a line of the log would break the picture
    asyncio.run(_show(args))
    return 0


async def _show(args: argparse.Namespace) -> None:
    async with open_target(args) as found, reader_of(found) as read:
        wide = args.output == "wide"
        if args.output == "json":
            print(msgspec.json.encode(facts(await read(), found, SystemClock().now())).decode())
        elif args.once or not sys.stdout.isatty():
            for line in picture(await read(), found, SystemClock().now(), wide=wide):
                print(line)
        else:
            await _draw(read, found, wide=wide)


async def _draw(read: Read, found: Target, *, wide: bool) -> None:
    page = console()
    with screen_of(page) as show:
        while True:
            view, size = await read(), page.size
            room = (None, None) if page.is_dumb_terminal else (size.width, size.height)
            show(picture(view, found, SystemClock().now(), *room, wide=wide))
            await asyncio.sleep(EVERY_BELOW if page.is_dumb_terminal else EVERY)


@contextmanager
def screen_of(page: Console) -> Iterator[Callable[[Sequence[str]], None]]:
    """
    Within it a call shows a picture in the place of the last one.

    A terminal that cannot move its cursor gets it below the last one: the live view of rich shows nothing there.
    """
    from rich.live import Live  # imported here: pipes and programs need no terminal library

    if page.is_dumb_terminal:
        yield lambda lines: page.print(_text([*lines, ""]), soft_wrap=True)
        return
    with Live(console=page, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda lines: live.update(_text(lines), refresh=True)


def facts(view: FleetView, found: Target, now: datetime) -> FleetFacts:
    """What the view shows, for programs."""
    state = view.state
    shown = [row for row in gangs.rows_of(view.roots, state, now) if found.namespace in (None, row.namespace)]
    ordered = [row for row in recoveries.in_order(state.recoveries()) if found.namespace in (None, row.namespace)]
    active = [row for row in ordered if row.phase not in ENDED]
    ended = [row for row in ordered if row.phase in ENDED][:ENDED_SHOWN]
    counted = fleet.summary(state.nodes, state.health, shown)
    return FleetFacts(name=found.name, at=now, trouble=view.trouble, counts=counted._asdict(), active=active,
                      ended=ended, gangs=shown)  # fmt: skip


def picture(
    view: FleetView,
    found: Target,
    now: datetime,
    width: int | None = None,
    height: int | None = None,
    *,
    wide: bool = False,
) -> list[str]:
    """The view as at most *height* lines of at most *width* characters; None: no limit, as in a pipe."""
    seen = facts(view, found, now)
    terms = KUBERNETES if found.state is None else ONE_SERVER
    lines = [f"{found.name}   {now:%Y-%m-%d %H:%M:%S} UTC"]
    lines += [f"out of date: {view.trouble}"] if view.trouble else []
    lines += fleet.sentences(fleet.FleetSummary(**seen.counts), terms)
    for title, rows in (("recoveries in progress", seen.active), ("recoveries that ended last", seen.ended)):
        if rows:
            table = [recoveries.cells(row, now) for row in rows]
            lines += ["", title, *lines_of(recoveries.COLUMNS, table, wide=wide, width=width)]
    if seen.gangs:
        table = [cells(row, now) for row in seen.gangs]
        lines += ["", "gangs", *lines_of(COLUMNS, table, wide=wide, width=width)]
    return [line[:width] for line in _cut(lines, height)]


def _cut(lines: Sequence[str], height: int | None) -> list[str]:
    if height is None or len(lines) <= height:
        return list(lines)
    return [*lines[: height - 1], f"and {len(lines) - height + 1} more lines; -n NAMESPACE shows fewer"]


@asynccontextmanager
async def reader_of(found: Target) -> AsyncIterator[Read]:
    """Reads the present state. Raises UserError where the account may not list what the view shows."""
    if found.state is not None:
        yield lambda: _read_run(found)
        return
    await _check_rights(found)
    state = ClusterState(ALL)
    informers = Informers(found.cluster, SystemClock(), state, ALL, lambda: None)
    watching = asyncio.create_task(informers.run(), name="top informers")

    async def read() -> FleetView:
        await informers.until_synced()
        roots = [await completed(ALL, informers, root) for root in list(state.roots.values())]
        return FleetView(state, roots, informers.trouble())

    try:
        yield read
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _read_run(found: Target) -> FleetView:
    state = ClusterState(ALL)
    await read_everything(found.cluster, state, ALL)
    return FleetView(state, list(state.roots.values()))


async def _check_rights(found: Target) -> None:
    kinds: list[type[Any]] = sorted(MUST_HAVE, key=lambda kind: kind.__name__)
    for kind in kinds:
        plural = RESOURCES[kind].plural
        try:
            await found.cluster.list(kind, labels=MATCHES_NOTHING)
        except NotFound:
            raise UserError(f"{found.name} has no {plural}: healthd is not installed there") from None
        except Forbidden as error:
            raise UserError(
                f"this account may not list all {plural} ({error}); `healthd gangs -n NAMESPACE` needs only those of "
                "one namespace"
            ) from error
        except ClusterError as error:
            raise UserError(str(error)) from error


def _text(lines: Sequence[str]) -> Text:
    from rich.text import Text

    shown = Text("\n").join(Text(line) for line in lines)
    shown.no_wrap = True
    return shown
