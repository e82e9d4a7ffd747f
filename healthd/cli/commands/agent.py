"""`healthd agent`: judge the hardware of one Kubernetes node, and take the node out of service when it is broken."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from healthd.cli import import_limits
from healthd.cli.errors import UserError

if TYPE_CHECKING:
    from healthd.clock import Clock
    from healthd.cluster.remote import Connection

EPILOG = """\
Runs in the pods of healthd's DaemonSet, which sets NODE_NAME and POD_UID from
the downward API. SIGTERM ends it within a second.

example, outside a cluster:
  healthd agent --node gpu-17 --kubeconfig ~/.kube/config
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd agent`."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--node", default="", metavar="NAME", help="the node to guard (default: $NODE_NAME)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file, see `healthd config`")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="how to reach the API server from outside")


def run(args: argparse.Namespace) -> int:
    """Guard the node until a signal."""
    node = args.node or os.environ.get("NODE_NAME", "")
    if not node:
        raise UserError("which node? name it with --node, or set NODE_NAME as healthd's DaemonSet does")
    _be_lean(in_pod=args.kubeconfig is None)
    from healthd.cli.configuration.reading import load
    from healthd.cli.machine.agent_process import guard
    from healthd.clock import SystemClock
    from healthd.cluster.port import Unusable
    from healthd.telemetry.address import AddressError
    from healthd.telemetry.logs import configure

    config = load(args.config)
    configure(config.log.format, config.log.level, sys.stderr)
    clock = SystemClock()
    try:
        asyncio.run(guard(node, config, _connection(args.kubeconfig, clock), clock))
    except (Unusable, AddressError) as error:
        raise UserError(str(error)) from None
    except BaseExceptionGroup as group:
        unusable = group.subgroup(Unusable)
        if unusable is None:
            raise
        raise UserError(_first_of(unusable)) from None
    return 0


_CLIENT = ("BaseHandler", "HTTPHandler", "HTTPRedirectHandler", "HTTPSHandler", "Request", "build_opener")


def _without_proxies() -> AbstractContextManager[None]:
    """aiohttp reads the settings of proxies with a second HTTP client. A pod asks its own cluster without a proxy."""
    return import_limits.empty("urllib.request", "getproxies", "proxy_bypass")


def _be_lean(*, in_pod: bool) -> None:
    """
    Import the libraries without the parts that are not needed, before any other import: it saves 11 MB of 55 on every
    node.
    """
    import_limits.use_plain_lists()
    if in_pod:
        import_limits.trust_no_public_authorities()
    with import_limits.without("rich"):  # structlog would load it for coloured tracebacks
        import structlog  # noqa: F401
    with (  # for a compression that API servers do not use; checks that no class of aiohttp asks for
        import_limits.without("backports"),
        import_limits.empty("attr.validators"),
        _without_proxies() if in_pod else nullcontext(),
    ):
        import aiohttp  # noqa: F401
    with (  # servers and a client of prometheus_client that are never started: 1 MB
        import_limits.empty("http.server", "BaseHTTPRequestHandler"),
        import_limits.empty("urllib.request", *_CLIENT),
        import_limits.empty("wsgiref.simple_server", "WSGIRequestHandler", "WSGIServer", "make_server"),
    ):
        import prometheus_client  # noqa: F401
    with import_limits.empty("html.entities", "html5"):  # two thousand names that aiohttp does not need
        import html  # noqa: F401


def _connection(kubeconfig: Path | None, clock: Clock) -> Connection:
    if kubeconfig is None:
        from healthd.cluster.remote import in_cluster

        return in_cluster(clock)
    from healthd.cluster.remote.kubeconfig import from_kubeconfig  # costs 20 MB more

    return from_kubeconfig(kubeconfig, clock=clock)


def _first_of(group: BaseExceptionGroup[BaseException]) -> str:
    """The first error, in the words of the innermost exception."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else str(first)
