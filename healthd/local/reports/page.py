"""
The live page of `healthd run` and `healthd demo`: that of the controller over the state of one run.

Other users of this server reach its loopback addresses, too. So the page asks for a key that is new in each run, and is
part of the address that is printed.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from healthd.clock import Clock
from healthd.cluster.port import Reader
from healthd.controller.reconciler import Reconciler
from healthd.core.config import Config
from healthd.core.recovery.terms import ONE_SERVER
from healthd.local.gang import NAMESPACE
from healthd.telemetry.address import AddressError, is_loopback

if TYPE_CHECKING:
    from healthd.controller.web.page import WebPage

FREE_PORT = "127.0.0.1:0"
"""The address that `--web` takes by itself: two runs on one server do not meet."""


def check_address(address: str) -> None:
    """Raises AddressError unless *address* is one that this server alone reaches."""
    if not is_loopback(address):
        raise AddressError(
            f"the page of a run is served to this server alone, and {address} is open to others: name "
            "127.0.0.1:PORT, and reach it by `ssh -L PORT:127.0.0.1:PORT`"
        )


class RunPage:
    """The page of the run *name*, by what *controller* has read. Without `web.address` it does nothing."""

    def __init__(self, name: str, config: Config, cluster: Reader, clock: Clock, controller: Reconciler) -> None:
        self._name = name
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._controller = controller
        self._page: WebPage | None = None

    def changed(self) -> None:
        """The controller may have read something new."""
        if self._page is not None:
            self._page.changed()

    @asynccontextmanager
    async def serving(self, announce: Callable[[str], None]) -> AsyncIterator[None]:
        """Serve it while in the block; *announce* gets its address, with the key. Raises AddressError."""
        if not self._config.web.address:
            yield
            return
        # Imported here: 9 MB of memory, only where the page is served.
        from healthd.controller.web.access import KeyAccess
        from healthd.controller.web.fleet import FleetSource
        from healthd.controller.web.page import WebPage

        check_address(self._config.web.address)
        source = FleetSource(
            name=self._name,
            cluster_state=self._controller.cluster_state,
            config=self._config,
            terms=ONE_SERVER,
            trouble=lambda: None if self._controller.has_read else "the state of the run was not read yet",
            has_alerts=bool(self._config.alerts.sinks),
        )
        self._page = WebPage(source, self._clock, self._cluster, NAMESPACE)
        key = secrets.token_urlsafe(16)
        async with self._page.serving(self._config.web.address, KeyAccess(key)) as server:
            announce(f"{server.url}/#key={key}")
            yield
