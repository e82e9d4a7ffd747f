"""
The HTTP contract: `/metrics`, `/healthz` and `/readyz`.

`/healthz` says only that this process' event loop still turns: a supervisor restarts on it, and a restart heals nothing
outside. `/readyz` answers 503 with the reasons while a reader is dead or stale: that is for people and for alerts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics

from healthd.telemetry.http import Page
from healthd.telemetry.metrics import Metrics

ReadyCheck = Callable[[], str | None]
"""Answers None when all is well, else the reason, quickly and without I/O."""

METRICS_LAST = 1.0
"""Seconds. To write the metrics of a large cluster takes a tenth of it, which a flood of requests may not repeat."""


def probe_pages(ready_checks: Mapping[str, ReadyCheck]) -> dict[str, Page]:
    """What a supervisor asks for."""

    def readyz(_request: web.BaseRequest) -> web.Response:
        reasons = {name: reason for name, check in ready_checks.items() if (reason := _ask(check)) is not None}
        return web.json_response({"ready": not reasons, "reasons": reasons}, status=503 if reasons else 200)

    return {"/healthz": lambda _request: web.Response(text="ok\n"), "/readyz": readyz}


def metrics_pages(metrics: Metrics) -> dict[str, Page]:
    """What Prometheus asks for, in either of its formats."""
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
    """What a check says; one that fails itself knows nothing, and not knowing is not being ready."""
    try:
        return check()
    except Exception as error:
        return f"the check itself failed: {type(error).__name__}: {error}"
