"""The signed webhook of a hand: what its server gets, and what becomes of an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from healthd.alerts.http import NoAnswer, Response
from healthd.alerts.sinks.webhook import signature
from healthd.controller.remediation.requests import CannotAsk
from healthd.controller.remediation.webhook import Webhooks
from healthd.core.api.remediations import Rung
from healthd.core.remediation.hands.description import HandDescription, Verb
from tests.fakes import START, ManualClock


class Server:
    """What stands at the other end."""

    def __init__(self, status: int = 200, fails: str = "") -> None:
        self.status = status
        self.fails = fails
        self.got: list[tuple[str, bytes, Mapping[str, str]]] = []

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        self.got.append((url, body, headers))
        if self.fails:
            raise NoAnswer(self.fails, was_sent=True)
        return Response(self.status)

    async def close(self) -> None:
        """Nothing is open."""


def a_call(secret: Path) -> HandDescription:
    return HandDescription(
        name="acme", rung=Rung.REBOOT, verb=Verb.CALL, object="https://power.example.com/x", secret=str(secret)
    )


async def call(server: Any, secret: Path) -> None:
    await Webhooks(ManualClock(), server)(a_call(secret), {"node": "gpu-17", "attempt": 7})


async def test_the_server_gets_what_is_asked_for_and_can_check_who_asks(tmp_path: Path) -> None:
    server, key = Server(), tmp_path / "key"
    key.write_text("s3cret-s3cret\n")
    await call(server, key)
    ((url, body, headers),) = server.got
    timestamp = str(int(START.timestamp()))

    assert (url, json.loads(body)) == ("https://power.example.com/x", {"node": "gpu-17", "attempt": 7})
    assert headers["X-Healthd-Timestamp"] == timestamp
    assert headers["X-Healthd-Signature"] == f"v1={signature('s3cret-s3cret', timestamp, body)}"


@pytest.mark.parametrize("server", [Server(status=503), Server(status=302), Server(fails="it does not answer")])
async def test_what_is_no_success_is_said_without_the_key(tmp_path: Path, server: Server) -> None:
    key = tmp_path / "key"
    key.write_text("s3cret-s3cret\n")

    with pytest.raises(CannotAsk) as caught:
        await call(server, key)
    assert "acme" in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_without_its_key_nothing_is_called(tmp_path: Path) -> None:
    server = Server()

    with pytest.raises(CannotAsk, match="secret"):
        await call(server, tmp_path / "none")
    assert server.got == []
