"""Check `rdma-loopback`: each RDMA port that is up can send to itself, where perftest's `ib_write_bw` is installed."""

from __future__ import annotations

import re
import time

from healthd.checks import programs
from healthd.checks.check import CheckContext, CheckResult, Figures, judged, skipped
from healthd.checks.devices import PortInfo
from healthd.core.diagnosis.link_state import LinkState

PROGRAM = "ib_write_bw"
FIRST_SOCKET = 18_600
"""TCP ports by which the two ends find each other. One for each RDMA port."""
ONE_PORT_S = 30.0
SHARE = 0.5
"""Of the port's rate (own choice): both directions of the loop share the port and the PCIe link below it."""
_TRIES = 20
_PAUSE = 0.25
"""Seconds between tries to reach the other end, which needs a moment to listen."""
_ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+(?P<gbps>[\d.]+)\s+[\d.]+\s*$", re.MULTILINE)


class RdmaLoopback:
    """Both ends of a connection on one port. EFA's ports cannot do this."""

    name = "rdma-loopback"
    needs = "ib_write_bw (perftest) on the PATH, and an RDMA port that is up"
    is_deep = True

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped without the program or a port."""
        program = programs.find(PROGRAM, context.environ)
        if program is None:
            return skipped(f"{PROGRAM} is not installed")
        ports = [port for port in context.ports if port.state == LinkState.UP and port.family != "efa"]
        if not ports:
            return skipped("there is no RDMA port that is up")
        figures: Figures = {}
        wrong: list[str] = []
        for number, port in enumerate(ports):
            name = f"{port.device}/{port.port}"
            speed, why = _loop(program, port, FIRST_SOCKET + number, context)
            figures[name] = {"gbps": speed, "limit_gbps": SHARE * port.rate_gbps}
            if why:
                wrong.append(f"{name}: {why}")
            elif speed < SHARE * port.rate_gbps:
                wrong.append(f"{name}: {speed:g} Gb/s, and {SHARE * port.rate_gbps:g} must be reached")
        return judged(wrong, f"{len(ports)} ports send to themselves", figures)


def parse_speed(output: str) -> float | None:
    """The average in the last row of ib_write_bw, in the requested unit."""
    rows = _ROW.findall(output)
    return float(rows[-1]) if rows else None


def _loop(program: str, port: PortInfo, socket: int, context: CheckContext) -> tuple[float, str]:
    """Gb/s, and what went wrong."""
    end = [program, "-d", port.device, "-i", str(port.port), "-p", str(socket), "--report_gbits", "-F"]
    until = time.monotonic() + min(ONE_PORT_S, context.seconds_left)
    try:
        listening = programs.start(end, context.environ)
    except OSError as error:
        return 0, f"{program} cannot be run: {error.strerror}"
    try:
        ended = _ask([*end, "localhost"], listening, until, context)
    finally:
        programs.end(listening)
    if ended.status is None:
        return 0, "it did not end in time"
    speed = parse_speed(ended.output)
    if ended.status or speed is None:
        return 0, f"{program} ended with status {ended.status}: {ended.last_line}"
    return speed, ""


def _ask(command: list[str], listening: programs.Child, until: float, context: CheckContext) -> programs.ProgramResult:
    """The client end, started again while the other end does not listen yet."""
    ended = programs.ProgramResult(None, "")
    for _ in range(_TRIES):
        ended = programs.run(command, context.environ, max(0.0, until - time.monotonic()))
        if ended.status is None or parse_speed(ended.output) is not None or listening.poll() is not None:
            break
        time.sleep(min(_PAUSE, max(0.0, until - time.monotonic())))
    return ended
