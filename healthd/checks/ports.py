"""Check `nics`: RDMA ports that belong to GPUs, or were ever in use, are up at their rate."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.checks.check import Bench, Figures, Result, judged, skipped
from healthd.checks.devices import Port, number
from healthd.core.diagnosis.link_state import Link

_BAD = {Link.DOWN, Link.DOWN_OFF_RAIL, Link.NO_MANAGER, Link.NEVER_UP}
"""A port that is switched off, or was never used, is no fault."""


class Nics:
    """Up, at the expected rate or at the rate of most ports of their kind."""

    name = "nics"
    needs = "an RDMA device"
    is_deep = False

    def run(self, bench: Bench) -> Result:
        """Skipped only where there is no RDMA port and none is expected."""
        if not bench.ports and not bench.expected.ports and "infiniband" not in bench.unread:
            return skipped("there is no RDMA device")
        figures: Figures = {_name(port): {"state": port.state, "gbps": port.rate_gbps} for port in bench.ports}
        up = [port for port in bench.ports if _is_up(port)]
        return judged(list(_wrong(bench, up)), f"{len(up)} ports are up", figures)


def _wrong(bench: Bench, up: list[Port]) -> Iterator[str]:
    if why := bench.unread.get("infiniband"):
        yield f"RDMA devices cannot be read: {why}"
    if bench.expected.ports is not None and len(up) != bench.expected.ports:
        yield f"{len(up)} ports are up, and {bench.expected.ports} are expected"
    for (device, _), present in bench.places.get("ib.present", {}).items():
        if present == "no":
            yield f"{device} is gone"
    yield from (f"{_name(port)} is {port.state}" for port in bench.ports if port.state in _BAD)
    for port in up:
        usual = number(bench.places, "ib.peer_rate", port.pci, f"port {port.port}") or 0
        least = bench.expected.rate_gbps or usual
        if 0 < port.rate_gbps < least:
            yield f"{_name(port)} runs at {port.rate_gbps:g} Gb/s instead of {least:g}"


def _is_up(port: Port) -> bool:
    """EFA's driver reports no link state, only that the port is there."""
    return port.state == Link.UP or (port.family == "efa" and port.state not in _BAD)


def _name(port: Port) -> str:
    return f"{port.device}/{port.port}"
