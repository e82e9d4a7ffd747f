"""JSON over HTTP from servers of the lab, which are all on this machine: no proxy, no TLS."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlencode

from tests.lab.programs import LabError

_PATIENCE = 10.0
"""Seconds for one answer."""


def get(port: int, path: str, **query: Any) -> Any:
    """The JSON at *path* of the server at *port*. Raises LabError for a bad status, OSError where nothing answers."""
    question = urlencode({name: value for name, value in query.items() if value is not None}, doseq=True)
    return ask(port, "GET", f"{path}?{question}" if question else path)


def ask(port: int, method: str, path: str, body: Any = None) -> Any:
    """The JSON that is answered to *body*; None where the answer is empty. Raises LabError, OSError."""
    status, answer = exchange(port, method, path, body)
    if status >= 300:
        raise LabError(f"{method} {path} answered {status}: {answer.decode(errors='replace').strip()}")
    return json.loads(answer) if answer.strip() else None


def is_ready(port: int) -> bool:
    """Whether a server answers `/-/ready` with 200, as Prometheus and Alertmanager do once they work."""
    try:
        return exchange(port, "GET", "/-/ready")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def exchange(port: int, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """Status and body of the answer. Raises OSError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    content = None if body is None else json.dumps(body).encode()
    try:
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
