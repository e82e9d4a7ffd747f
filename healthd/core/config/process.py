"""What every program of healthd has: who leads, where it answers, how it logs."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from healthd.core.config.base import Policy, span


class LeaderPolicy(Policy, frozen=True, kw_only=True):
    """Which one of several controllers acts."""

    lease: Annotated[
        timedelta,
        span(
            "After so long without a sign of the leader a standby takes over. The leader renews its lease seven times "
            "in it, and stops acting when it could not for two thirds of it. 15 s is what the control plane's own "
            "programs take; shorter costs requests, and makes a busy API server depose leaders. A leader that ends by "
            "itself is followed at once.",
            at_least=timedelta(seconds=2),
        ),
    ] = timedelta(seconds=15)


class HttpPolicy(Policy, frozen=True, kw_only=True):
    """The read-only HTTP endpoints: /metrics, /healthz, /readyz."""

    address: Annotated[
        str,
        Meta(
            description="Where to listen, `host:port`: `127.0.0.1:9400`, `[::1]:9400`, or `:9400` for every "
            "interface; port 0 takes a free one. Empty, the default, does not listen: what is not asked "
            "for is not opened.",
        ),
    ] = ""
    probe_address: Annotated[
        str,
        Meta(
            description="Where /healthz and /readyz alone are served as well, `host:port`. The manifests name `:9401`. "
            "The NetworkPolicy opens that port to no pod, so a flood of the other one takes no connection from "
            "the kubelet. Empty: nowhere.",
        ),
    ] = ""


class LogFormat(StrEnum):
    """How healthd writes its own log."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class LogLevel(StrEnum):
    """The least important event that is still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogPolicy(Policy, frozen=True, kw_only=True):
    """healthd's own log, on standard error."""

    format: Annotated[
        LogFormat,
        Meta(
            description="`console` is for people, `json` (one object a line) for log collectors. `auto` is console on "
            "a terminal and json elsewhere, and sentences for `healthd run`, whose log is in a file as well.",
        ),
    ] = LogFormat.AUTO
    level: Annotated[
        LogLevel,
        Meta(description="The least important event that is written. Acts and their reasons are `info` or above."),
    ] = LogLevel.INFO
