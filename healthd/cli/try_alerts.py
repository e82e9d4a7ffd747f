"""
`healthd alerts test`: send a test incident to every alert service of a configuration, and say what the answers prove.

Exit codes: 0 every service took it, 1 some did not.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from healthd.alerts.registry import SinkError, make_sink
from healthd.alerts.sink import Answer, Outcome, Sink
from healthd.cli.configuration.reading import load
from healthd.cli.errors import UserError
from healthd.cli.terminal.output import complain
from healthd.clock import Clock, SystemClock
from healthd.core.api.incidents import Incident, Severity
from healthd.core.config import SinkPolicy

HELP = "send a test incident, opened and then resolved, to every alert service"
NOT_TAKEN = 1
TOOK = (Answer.ACCEPTED, Answer.DELIVERED, Answer.UNKNOWN)
_EPILOG = """\
A service that gets pages gets the test as a page: it wakes somebody, if all is well.

examples:
  healthd alerts test --config healthd.yaml                          # every service
  healthd alerts test --config healthd.yaml --sink oncall            # one of them
  healthd alerts test --config healthd.yaml --sink oncall --hold 60  # open for a minute

Alertmanager sends no notification of what is over within its `group_wait`: use a longer --hold.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd alerts test`."""
    parser.description = f"{HELP[:1].upper()}{HELP[1:]}, and say what the answers prove."
    parser.epilog, parser.formatter_class = _EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file with `alerts.sinks`")
    parser.add_argument("--sink", action="append", default=[], metavar="NAME", help="only this one (may be repeated)")
    parser.add_argument("--hold", type=float, default=0.0, metavar="SECONDS", help="how long it stays open")


def run(args: argparse.Namespace) -> int:
    """Try them, one after the other."""
    config = load(args.config).alerts
    policies = _chosen(config.sinks, args.sink)
    clock = SystemClock()
    try:
        sinks = [make_sink(policy, clock, base_url=config.base_url) for policy in policies]
    except SinkError as error:
        raise UserError(str(error)) from None
    return asyncio.run(_try_all(sinks, policies, timedelta(seconds=args.hold), clock, config.cluster))


def _chosen(policies: Sequence[SinkPolicy], names: Sequence[str]) -> list[SinkPolicy]:
    if not policies:
        raise UserError("there is no alert service to test: `alerts.sinks` is empty; name the file with --config")
    known = {policy.name: policy for policy in policies}
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"there is no alert service {unknown[0]!r}; there are {', '.join(known)}")
    return [known[name] for name in names] or list(policies)


async def _try_all(
    sinks: Sequence[Sink], policies: Sequence[SinkPolicy], hold: timedelta, clock: Clock, cluster: str
) -> int:
    took = []
    for sink, policy in zip(sinks, policies, strict=True):
        print(f"{policy.name} ({policy.kind})")
        for warning in getattr(sink, "warnings", list)():
            complain(f"  warning: {warning}")
        try:
            took.append(await _try(sink, policy, hold, clock, cluster))
        finally:
            await sink.close()
    return 0 if all(took) else NOT_TAKEN


async def _try(sink: Sink, policy: SinkPolicy, hold: timedelta, clock: Clock, cluster: str) -> bool:
    """Whether *sink* took both messages. What is not opened is not resolved."""
    opened = a_test(policy, clock, cluster)
    outcome = await sink.send(opened, "")
    _print("opened", outcome)
    if outcome.answer not in TOOK:
        return False
    await clock.sleep(hold)
    outcome = await sink.send(_resolved(opened, clock), outcome.thread)
    _print("resolved", outcome)
    return outcome.answer in TOOK


def a_test(policy: SinkPolicy, clock: Clock, cluster: str = "") -> Incident:
    """An incident that is about nothing."""
    severity = Severity.PAGE if Severity.PAGE in policy.severities else Severity.NOTICE
    return Incident(
        cluster=cluster,
        key=f"test/{policy.name}/{secrets.token_hex(4)}",
        severity=severity,
        title=f"Test of the alert service {policy.name}: nothing is wrong",
        opened=clock.now(),
        updated=clock.now(),
        happened="Somebody ran `healthd alerts test`.",
        did="healthd sent this message, and resolves it by itself.",
        todo="Nothing.",
        command=f"healthd alerts test --sink {policy.name}",
        labels={"cause": "test"},
    )


def _resolved(opened: Incident, clock: Clock) -> Incident:
    return replace(opened, revision=2, updated=clock.now(), resolved=clock.now())


def _print(what: str, outcome: Outcome) -> None:
    print(f"  {what:<9} {outcome.answer.value:<10} {outcome.detail}")
