"""Serve HTTP as configured: all endpoints on one address, and the kubelet's probes also on a separate one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from healthd.core.config import HttpPolicy
from healthd.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from healthd.telemetry.pages import ReadyCheck

log = structlog.get_logger(__name__)


@asynccontextmanager
async def serving(policy: HttpPolicy, metrics: Metrics, ready_checks: Mapping[str, ReadyCheck]) -> AsyncIterator[None]:
    """Serve while in the block. Raises AddressError when healthd cannot listen on an address."""
    async with AsyncExitStack() as servers:
        if policy.address or policy.probe_address:
            from healthd.telemetry.http import serve  # here: 9 MB of memory, only when a server is configured
            from healthd.telemetry.pages import metrics_pages, probe_pages

            probes = probe_pages(ready_checks)
            offers = (policy.address, metrics_pages(metrics) | probes), (policy.probe_address, probes)
            for address, pages in offers:
                if address:
                    server = await servers.enter_async_context(await serve(address, pages))
                    log.info("http.serving", url=server.url, paths=list(pages))
        yield
