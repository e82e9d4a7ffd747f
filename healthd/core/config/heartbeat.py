"""The heartbeat that the leading controller sends to a service outside the cluster."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from healthd.core.config.base import Policy, span


class HeartbeatMethod(StrEnum):
    """The request that a heartbeat service takes."""

    GET = "get"
    POST = "post"


class HeartbeatPolicy(Policy, frozen=True, kw_only=True):
    """A service outside the cluster that pages when it hears nothing. docs/monitoring/README.md has examples."""

    url_file: Annotated[
        str,
        Meta(
            description="A file with the address that is called, which is a secret. The leading controller calls it "
            "while its reconcile loop turns. It begins with `https://`, unless `insecure` is set. Empty, the default: "
            "there is no heartbeat."
        ),
    ] = ""
    interval: Annotated[
        timedelta,
        span(
            "Between two calls. Set the period of the service to this, and a grace of as much again: a change of the "
            "leader takes some seconds.",
            at_least=timedelta(seconds=10),
        ),
    ] = timedelta(minutes=1)
    method: Annotated[HeartbeatMethod, Meta(description="The request, without a body. Most services take both.")] = (
        HeartbeatMethod.GET
    )
    authorization_file: Annotated[
        str,
        Meta(
            description="A file with the value of the header `Authorization`, such as `GenieKey …` for Jira Service "
            "Management, where the address alone does not say who calls."
        ),
    ] = ""
    ca_file: Annotated[
        str,
        Meta(
            description="A file with the certificates (PEM) that the server's certificate is checked against. Empty, "
            "the default: those of the system."
        ),
    ] = ""
    insecure: Annotated[bool, Meta(description="Whether `http://` is allowed: for a service in the same network.")] = (
        False
    )

    def __post_init__(self) -> None:
        files = {key: getattr(self, key) for key in ("url_file", "authorization_file", "ca_file")}
        if relative := [key for key, path in files.items() if path and not path.startswith("/")]:
            raise ValueError(f"{relative[0]} must be an absolute path")
        if not self.url_file and any(files.values()):
            raise ValueError("there is no url_file, so nothing is called")
