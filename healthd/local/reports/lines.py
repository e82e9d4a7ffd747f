"""
The log of `healthd run` as lines for the user at the terminal: one sentence for each event of the run, no internals.

An event keeps its name and fields; the log file has all of them. This module has the sentence for each event. An event
that is not in the table is shown in plain form from level warning upwards, so no problem is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from healthd.core.printable import printable
from healthd.core.recovery.terms import ONE_SERVER

Event = Mapping[str, Any]

PREFIX = "[healthd]"
"""The prefix of healthd's own lines. Lines of a rank have a prefix such as `[rank 0]`."""
_COLOURS = {"warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_PLAIN = "\x1b[0m"
_META = frozenset({"event", "level", "logger", "timestamp", "exc_info", "exception", "stack"})
_CALM = frozenset({"run.restarted"})
"""Warnings without the warning mark: the restart is the purpose of healthd."""
_WHY = ("why", "error", "note", "so")
"""Fields that are sentences. They end the line, in this order."""


class Lines:
    """Makes the line of an event. Empty when there is nothing for a person. *colours*: for a terminal."""

    def __init__(self, *, colours: bool = False) -> None:
        self._colours = colours

    def __call__(self, event: Event) -> str:
        level, name = str(event.get("level", "info")), str(event.get("event", ""))
        text = sentence(event)
        if not text:
            return ""
        marked = level in _COLOURS and name not in _CALM
        mark = f"{level}: " if marked else ""
        colour = _COLOURS[level] if marked and self._colours else ""
        end = _PLAIN if colour else ""
        clock = _clock(str(event.get("timestamp", "")))
        lines = [f"{PREFIX} {clock} {colour}{mark}{printable(line)}{end}" for line in text.split("\n")]
        return "\n".join(lines)


def sentence(event: Event) -> str:
    """The sentence for *event*. Empty when there is none."""
    sentence = _SENTENCES.get(str(event.get("event", "")))
    if sentence is not None:
        with suppress(KeyError):  # an event without a field that the sentence needs is still shown
            return sentence(event)
    return _in_plain_form(event) if event.get("level") in _COLOURS else ""


def _clock(stamp: str) -> str:
    """The time of day in the user's time zone."""
    try:
        return f"{datetime.fromisoformat(stamp).astimezone():%H:%M:%S}"
    except ValueError:
        return ""


def _in_plain_form(event: Event) -> str:
    """Any event: its name as words, its fields, and its reason."""
    what = str(event.get("event", "")).replace(".", " ").replace("_", " ")
    facts = [f"{key}={value}" for key, value in event.items() if key not in _META and key not in _WHY]
    why = [str(event[key]) for key in _WHY if event.get(key)]
    return "; ".join([" ".join([what, *facts]), *why])


def _silence(_: Event) -> str:
    return ""


def _starts(event: Event) -> str:
    of = f", saved by {event['saved_by']}" if event.get("saved_by") else ""
    changed = f"; {event['changed']}" if event.get("changed") else ""
    note = f"; {event['note']}" if event.get("note") else ""
    return f"run {event.get('name')} starts at {event.get('at')}{of}{changed}{note}"


def _stops(event: Event) -> str:
    by = f"{event['by']}: " if event.get("by") else ""
    return f"{by}the ranks are asked to end, and get {event['grace']}; a second Ctrl-C ends them at once"


def _quarantined(event: Event) -> str:
    """Adds a note when the quarantine record is older than the run."""
    then = event.get("note") or f"When it is repaired: `healthd repair {event['node']}`"
    return f"{event['node']} is out of service for {event['finding']}: {ONE_SERVER.worded(event['why'])} {then}"


def _refused(event: Event) -> str:
    """The budget counts slots here."""
    why = re.sub(r"^the budget of \w+, (\d+) nodes", r"the budget, \1 slots (quarantine.budget)", str(event["why"]))
    return f"{event['node']} should be out of service for {event['finding']}, and may not: {why}"


def _returned(event: Event) -> str:
    return f"{event['node']} is back in service: {ONE_SERVER.worded(str(event['why']))}"


def _unassigned(event: Event) -> str:
    why = ONE_SERVER.worded(str(event["why"]))
    return f"the kernel reports {event['finding']}: {why} ({event['record']}); {event['so']}"


def _rejected(event: Event) -> str:
    path = str(event.get("path", "")).removeprefix("file://")
    return f"{path} is not resumed from: {event.get('why')}"


def _undeclared(event: Event) -> str:
    return f"a restart could not resume from {event.get('path')}: {event.get('why')}"


def _text(event: Event) -> str:
    return str(event.get("text", ""))


def _filled(template: str) -> Callable[[Event], str]:
    """A sentence with the fields of the event in their places."""
    return lambda event: template.format_map({**event, "event": event})


_SENTENCES: Mapping[str, Callable[[Event], str]] = {
    # The run as a whole (`run_log`): the event brings its sentence.
    "run.starts": _starts,
    "run.goes_on": _filled(
        "the healthd before this one was killed: run {name} goes on from the newest checkpoint that loads"
    ),
    "run.places": _text,
    "run.page": _filled("live page: {url}"),
    "run.threads": _filled("each rank gets OMP_NUM_THREADS={OMP_NUM_THREADS}, as with torchrun; set it to choose"),
    "run.restarted": _text,
    "run.held": _filled("{text}\nthe way out: {note}"),
    "run.message": _text,
    "run.hangs": _filled("{text}\n{note}"),
    "run.hang_located": lambda event: "\n".join(filter(None, (event["text"], event.get("note", "")))),
    "run.works_again": _text,
    "run.straggler": _text,
    "run.straggler_over": _text,
    "run.stops": _stops,
    "run.hurries": _filled("asked twice: what is left of the ranks is killed"),
    "run.stopped": _filled("run {name} was stopped at {at}; {note}"),
    "run.completed": lambda event: (
        f"run {event.get('name')} has finished at {event.get('at')}"
        + (f", but {event['but']}; {event.get('note')}" if event.get("but") else "")
    ),
    "run.gave_up": _filled("run {name} is given up (exit code {exit_code}): {why}; {note}"),
    "run.summary": _text,
    "run.done": _filled("run {name}: {note}"),
    "run.waits": _filled("the run waits: {why}; {note}"),
    "command.hides_exit_code": _filled("{by} in the command hides how ranks end: {note}"),
    "rank.left_early": _text,
    "rank.left_processes": _text,
    "rank.stuck": _filled("a rank on {node} cannot be ended (processes {pids}): a driver or a file system holds it"),
    "checkpoints.moved_aside": _filled("the checkpoints that were there are in {to} now; {note}"),
    "checkpoints.not_writable": _filled("nothing can be saved in {folder}: {why}; a rank that saves there will fail"),
    "checkpoints.not_locked": _filled("{folder} cannot be locked against a second run: {why}; {note}"),
    "checkpoint.rejected": _rejected,
    "checkpoint.undeclared": _undeclared,
    "checkpoint.worry": _filled("saving goes wrong: {why}"),
    "checkpoint.worry_over": _silence,
    "checkpoints.unread": _filled("the checkpoints cannot be read: {why}"),
    "checkpoints.read_again": _filled("the checkpoints can be read again"),
    "gang.may_hang": _filled("the run may hang, but its checkpoints cannot be read, so it is not restarted: {why}"),
    "gang.left_alone": _filled("the run is left alone: {why}"),
    "spare.used": _filled("{slot} is used although it was a spare: {note}"),
    # Hardware.
    "gpus.none": _silence,
    "fault.unassigned": _unassigned,
    "gpus.unseen": _filled("{devices}, but none can be used: {why}; {so}"),
    "node.quarantined": _quarantined,
    "node.returned": _returned,
    "finding.raised": _silence,
    "quarantine.refused": _refused,
    "kernel_log.unreadable": _filled("the kernel log cannot be read: {why}; {so}"),
    "kernel_log.lost": _filled("{records} records of the kernel log were overwritten before they could be read"),
    "kernel_log.trusts_user_space": _filled("{note}"),
    # Problems of healthd itself.
    "job.write_failed": _filled("the state of the run cannot be written: {error}; {note}"),
    "pod.write_failed": _filled("the state of a rank cannot be written: {error}; {note}"),
    "pod.bind_failed": _filled("the state of a rank cannot be written: {error}; tried until it works"),
    "gang.retry": _filled("a restart is tried again: {error}"),
    "agent.retry": _filled("the state of {node} cannot be read or written: {error}; tried until it works"),
    "cycle.failed": _filled("something inside healthd failed, and is tried again: {error}"),
    "log.lacks_lines": _filled("healthd.log cannot be written, and will lack lines: {error}; the run goes on"),
    # The restart itself has its own line.
    "recovery.opened": _silence,
    "alert.not_sent": lambda event: (
        f"{event['sink']} was not alerted: {event['error']}; it is tried again" if event.get("failures") == 1 else ""
    ),
    "alert.dead_letter": _filled("{sink} is not alerted any more to {title}: {error}"),
    "alerts.unsent": _filled("{messages} messages to alert services were not sent; {note}"),
    "notify.failed": lambda event: "; ".join(
        filter(None, (f"--notify {event['target']} failed: {event['why']}", event.get("note")))
    ),
}
"""The sentence for each event."""
