"""healthd itself, and the nodes under the gang: who watches them, and what could stand in for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from healthd.core.api import LABEL_SPARE, Lease
from healthd.core.phrases import some
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.members import is_terminal
from healthd.core.recovery.nodes.spares import choose
from healthd.core.report.doctor.chart import Chart, Remark, RemarkLevel
from healthd.core.report.listing.ages import age

SILENT = timedelta(minutes=2)
"""A leader renews its Lease every few seconds, and clocks of two machines differ a bit."""


def examine(chart: Chart) -> Iterator[Remark]:
    """No remarks on nodes that cannot be read."""
    if not chart.is_installed:
        yield Remark(
            RemarkLevel.PREVENTS,
            "healthd is not installed in this cluster: it has no recoveries",
            "nothing would restart the gang; one that healthd has stopped before stays stopped",
            "install it, or apply its definitions again: docs/kubernetes/install.md",
        )
    elif chart.leases is not None:
        yield from _controller(chart.leases, chart.now)
    here = sorted({pod.spec.node_name for pod in chart.pods if pod.spec.node_name and not is_terminal(pod)})
    if chart.nodes and here:
        yield from _agents(chart, here)
        yield from _spares(chart, here)


def _controller(leases: Sequence[Lease], now: datetime | None) -> Iterator[Remark]:
    """That a Lease was not renewed is a risk alone: the clock of the doctor's machine may be wrong."""
    held = [each.spec for each in leases if each.spec.holder_identity]
    holders = {each.renew_time: each.holder_identity for each in held if each.renew_time}
    renewed = max(holders, default=None)
    if not held:
        level, what = RemarkLevel.PREVENTS, "no controller of healthd leads: nothing holds its Lease"
    elif now and renewed and now - renewed > SILENT:
        who, ago = holders[renewed], age((now - renewed).total_seconds())
        level, what = RemarkLevel.RISKS, f"the controller that leads, {who}, has not renewed its Lease for {ago}"
    else:
        return
    yield Remark(
        level,
        what,
        "without a controller nothing restarts the gang, and a fault waits for the next one",
        "see why its pods do not run: kubectl get pods --all-namespaces -l app.kubernetes.io/component=controller",
    )


def _agents(chart: Chart, here: list[str]) -> Iterator[Remark]:
    unwatched = [name for name in here if name not in chart.health]
    if unwatched:
        yield Remark(
            RemarkLevel.RISKS,
            f"no healthd agent reports from {some(unwatched)}",
            "a GPU that breaks there is noticed only when ranks fail, or by another detector",
            "see that the DaemonSet healthd-agent runs there: kubectl get nodehealths",
        )


def _spares(chart: Chart, here: list[str]) -> Iterator[Remark]:
    view = GangView(root=chart.root, nodes=chart.nodes, health=chart.health)
    without = [
        name
        for name in here
        if not choose([name], view, kept={}, recovery="", policy=chart.policy, used=set(here) - {name})
    ]
    if not without:
        return
    any_at_all = any(node.metadata.labels.get(LABEL_SPARE) == "true" for node in chart.nodes.values())
    wanting = "no free spare has the same hardware as" if any_at_all else "no node is held as a spare for"
    shrinks = chart.root is not None and chart.root.fewest is not None
    yield Remark(
        RemarkLevel.NOTE if shrinks else RemarkLevel.RISKS,
        f"{wanting} {some(without)}",
        "if it breaks, the gang goes on with fewer members" if shrinks else "if it breaks, the gang waits for a repair",
        # In this order: where the label is first, the controller adds the taint, and kubectl finds it there already.
        f"kubectl taint node NAME {LABEL_SPARE}=:NoSchedule && kubectl label node NAME {LABEL_SPARE}=true",
    )
