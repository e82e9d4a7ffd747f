"""
Alerts of `healthd run`: the loop of the controller (`healthd.controller.alerts.incidents`) over the store of one run.

Incidents and what each service has accepted of them are in the store of the run. So kill -9 loses nothing: the next
`healthd run` of the same name goes on where this one was. What is different on one server is the name of the cluster,
the words, and that the process has an end, which waits for the services a short time.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import structlog
from msgspec.structs import replace

from healthd.alerts.sink import Sink
from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError
from healthd.controller.alerts.incidents import Alerts
from healthd.controller.reconciler import Reconciler
from healthd.core.alerts.advice import Advice
from healthd.core.api.model import Hold
from healthd.core.config import AlertsPolicy, Config
from healthd.core.recovery.terms import ONE_SERVER
from healthd.local.gang import NAMESPACE
from healthd.local.reports.restarts import way_out
from healthd.local.state.folder import explain_command, option_of
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

PATIENCE = timedelta(seconds=10)
"""The end of a run does not wait longer for alert services."""


class RunAlerts:
    """
    The alerts of the run *name*, which keeps its state in *state*, to *sinks*, by what *controller* has read. Without
    sinks it does nothing.
    """

    def __init__(
        self,
        name: str,
        state: Path,
        cluster: Cluster,
        clock: Clock,
        controller: Reconciler,
        config: Config,
        sinks: Sequence[Sink],
        metrics: Metrics,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._controller = controller
        self._sinks = sinks
        self._patience = patience
        self._wake = asyncio.Event()
        self._alerts = Alerts(
            cluster,
            clock,
            controller.cluster_state,
            sinks,
            replace(config.alerts, cluster=cluster_name(config.alerts, name, socket.gethostname())),
            config.quarantine,
            namespace=NAMESPACE,
            metrics=metrics,
            wake=self._wake,
            trouble=lambda: None if controller.has_read else "the state of the run was not read yet",
            jitter=random.random,
            advice=advice_of(name, state),
            has_agents=False,
        )

    def changed(self) -> None:
        """The controller may have read something new."""
        self._wake.set()

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """
        Alert while the block runs. At its end there is a short time for what is not sent yet; what is left then stays
        in the store. A failure here never ends the run.
        """
        if not self._sinks:
            yield
            return
        work = asyncio.create_task(self._work(), name="alerts")
        try:
            yield
            await self._finish()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            for sink in self._sinks:
                await sink.close()

    async def _work(self) -> None:
        try:
            await self._alerts.run()
        except Exception as error:  # people can still read the log
            log.exception("alerts.failed", error=str(error))

    async def _finish(self) -> None:
        """The loops of the run have ended, so its last state is read here."""
        try:
            await self._controller.sync()
        except ClusterError as error:
            log.warning("alerts.failed", error=str(error))
        if waiting := await self._alerts.finish(self._patience):
            log.warning("alerts.unsent", messages=waiting, note="they are kept: the same command sends them")


def cluster_name(policy: AlertsPolicy, run: str, host: str) -> str:
    """What the keys of a run begin with: two runs on one server, or on servers with one configuration, differ."""
    return f"{policy.cluster or host}/{run}"


def _as_template(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def advice_of(run: str, state: Path) -> Advice:
    """What the owner of a run can do, and the commands for it."""
    option, explain = _as_template(option_of(run, state)), _as_template(explain_command(run, state))
    return Advice(
        terms=ONE_SERVER,
        subject="run {name}",
        waits={hold: way_out(hold, "{node}", option) for hold in Hold},
        unread_place=way_out(Hold.CHECKPOINT, "{node}", option),
        given_up="healthd does nothing more for it by itself: mend the cause, then give the same command again",
        repair=f"healthd repair {{node}} {option}",
        broken_in_service="stop the run with Ctrl-C and repair the GPU, or raise quarantine.budget",
        ask_gang=explain,
        ask_gangs=f"healthd explain {option}",
        ask_node=f"healthd status {option}",
        ask_nodes=f"healthd status {option}",
    )
