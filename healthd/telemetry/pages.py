"""
The HTTP endpoints: `/metrics`, `/healthz` and `/readyz`.

`/healthz` shows only that this process' event loop still runs: a supervisor restarts on it, and a restart repairs
nothing outside. `/readyz` answers 503 with the reasons while a reader is dead or stale: for people and for alerts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics

from healthd.telemetry.http import PageHandler
from healthd.telemetry.metrics import Metrics

ReadyCheck = Callable[[], str | None]
"""Returns None when ready, else the reason, quickly and without I/O."""

METRICS_LAST = 1.0
"""Seconds to cache the text. In a large cluster it takes a tenth of this to write; many requests must not repeat it."""


def probe_pages(ready_checks: Mapping[str, ReadyCheck]) -> dict[str, PageHandler]:
    """The endpoints for a supervisor: `/healthz` and `/readyz`."""

    def readyz(_request: web.BaseRequest) -> web.Response:
        reasons = {name: reason for name, check in ready_checks.items() if (reason := _ask(check)) is not None}
        return web.json_response({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)

    return {"/healthz": lambda _request: web.Response(text="ok\n"), "/readyz": readyz}


def metrics_pages(metrics: Metrics) -> dict[str, PageHandler]:
    """The endpoint for Prometheus, `/metrics`, in either of its formats."""
    written: dict[str, tuple[float, bytes]] = {}

    def show(request: web.BaseRequest) -> web.Response:
        accepted = request.headers.get("Accept", "")
        form, write = _OPENMETRICS if "application/openmetrics-text" in accepted else _TEXT
        now = asyncio.get_running_loop().time()
        until, body = written.get(form, (now, b""))
        if until <= now:
            body = write(metrics.registry)
            written[form] = (now + METRICS_LAST, body)
        return web.Response(body=body, headers={"Content-Type": form})

    return {"/metrics": show}


_TEXT = (exposition.CONTENT_TYPE_PLAIN_0_0_4, exposition.generate_latest)
_OPENMETRICS = (openmetrics.CONTENT_TYPE_LATEST, openmetrics.generate_latest)


def _ask(check: ReadyCheck) -> str | None:
    """The result of a check. A check that itself fails counts as not ready, because its result is unknown."""
    try:
        return check()
    except Exception as error:
        return f"the check itself failed: {type(error).__name__}: {error}"
