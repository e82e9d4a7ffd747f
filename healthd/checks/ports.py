"""Check `nics`: RDMA ports that belong to GPUs, or were ever in use, are up at their rate."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.checks.check import CheckContext, CheckResult, Figures, judged, skipped
from healthd.checks.devices import PortInfo, number
from healthd.core.diagnosis.link_state import LinkState

_BAD = {LinkState.DOWN, LinkState.DOWN_OFF_RAIL, LinkState.NO_MANAGER, LinkState.NEVER_UP}
"""A port that is switched off, or was never used, is no fault."""


class Nics:
    """Up, at the expected rate or at the rate of most ports of their kind."""

    name = "nics"
    needs = "an RDMA device"
    is_deep = False

    def run(self, context: CheckContext) -> CheckResult:
        """Skipped only where there is no RDMA port and none is expected."""
        missing = _missing(context)
        if not context.ports and not context.expected.ports and not missing and "infiniband" not in context.unread:
            return skipped("there is no RDMA device")
        figures: Figures = {_name(port): {"state": port.state, "gbps": port.rate_gbps} for port in context.ports}
        up = [port for port in context.ports if _is_up(port)]
        return judged([*missing, *_wrong(context, up)], f"{len(up)} ports are up", figures)


def _missing(context: CheckContext) -> list[str]:
    """How many RDMA devices are expected, where there are fewer. The number of ports that an operator states wins."""
    known, devices = context.expected.known.rdma_devices, len({port.pci for port in context.ports})
    if known is None or context.expected.ports is not None or devices >= known.count:
        return []
    return [f"there are {devices} RDMA devices, and {known.count} are expected: {known.why}"]


def _wrong(context: CheckContext, up: list[PortInfo]) -> Iterator[str]:
    if why := context.unread.get("infiniband"):
        yield f"RDMA devices cannot be read: {why}"
    if context.expected.ports is not None and len(up) != context.expected.ports:
        yield f"{len(up)} ports are up, and {context.expected.ports} are expected"
    for (device, _), present in context.places.get("ib.present", {}).items():
        if present == "no":
            yield f"{device} is gone"
    yield from (f"{_name(port)} is {port.state}" for port in context.ports if port.state in _BAD)
    for port in up:
        usual = number(context.places, "ib.peer_rate", port.pci, f"port {port.port}") or 0
        least = context.expected.rate_gbps or usual
        if 0 < port.rate_gbps < least:
            yield f"{_name(port)} runs at {port.rate_gbps:g} Gb/s instead of {least:g}"


def _is_up(port: PortInfo) -> bool:
    """EFA's driver reports no link state, only that the port is there."""
    return port.state == LinkState.UP or (port.family == "efa" and port.state not in _BAD)


def _name(port: PortInfo) -> str:
    return f"{port.device}/{port.port}"
