"""`healthd controller`: restart the training gangs of a Kubernetes cluster when the hardware under them breaks."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import structlog

from healthd.alerts.heartbeat import make_heartbeat
from healthd.alerts.http import Http, proxy_of_environment
from healthd.alerts.registry import make_sinks
from healthd.alerts.sink import SinkError
from healthd.cli.configuration.reading import load
from healthd.cli.configuration.site_hands import hands_of
from healthd.cli.errors import UserError
from healthd.cli.target import cluster as target_cluster
from healthd.clock import Clock, SystemClock
from healthd.cluster.port import Cluster, Unusable
from healthd.cluster.remote import connect
from healthd.controller.checkpoints.mounted import FileCheckpoints
from healthd.controller.checkpoints.verifier_pods import VerifierPods, image_of
from healthd.controller.daemon import ControllerDaemon, ControllerDependencies
from healthd.controller.remediation.requests import Requests
from healthd.controller.remediation.webhook import Webhooks
from healthd.core.api.names import SYSTEM_NAMESPACE
from healthd.core.config import CheckpointsPolicy, Config, RemediationPolicy
from healthd.gangs.kinds import adapters_of
from healthd.telemetry.address import AddressError
from healthd.telemetry.logs import configure

log = structlog.get_logger(__name__)

EPILOG = """\
Run two: the one that holds the Lease `healthd-controller` acts, the other one
takes over at once when it ends. SIGTERM gives the lease back.

example, outside a cluster:
  healthd controller --kubeconfig ~/.kube/config
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `healthd controller`."""
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration file, see `healthd config`")
    parser.add_argument("--metrics", default="", metavar="ADDR", help="serve /metrics, /healthz and /readyz there")
    target_cluster.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Watch over all gangs until a signal."""
    config = load(args.config)
    if args.metrics:
        config = target_cluster.serving_at(config, args.metrics)
    configure(config.log.format, config.log.level, sys.stderr)
    _check_namespace(os.environ.get("POD_NAMESPACE", ""), config)
    try:
        asyncio.run(_run(config, args, SystemClock()))
    except (Unusable, AddressError, SinkError) as error:
        raise UserError(str(error)) from None
    except BaseExceptionGroup as group:
        if (unusable := target_cluster.first_of(group, Unusable)) is None:
            raise
        raise UserError(str(unusable)) from None
    return 0


def _check_namespace(own: str, config: Config) -> None:
    """
    Elsewhere no admission policy as it is shipped limits what this controller may do, and its agents have no budget. A
    site that has changed all names has changed that of the budget, too.
    """
    if own and own not in {SYSTEM_NAMESPACE, config.quarantine.namespace}:
        raise UserError(
            f"this pod runs in the namespace {own}: the admission policies name {SYSTEM_NAMESPACE}, and limit nothing "
            f"there. Install healthd in {SYSTEM_NAMESPACE}: no overlay may set its `namespace`. Where policies, roles "
            f"and budget were all changed to {own}, set quarantine.namespace to it"
        )


async def _run(config: Config, args: argparse.Namespace, clock: Clock) -> None:
    async with connect(target_cluster.connection(args, clock), clock=clock, jitter=random.random) as cluster:
        pod, namespace = os.environ.get("POD_NAME", ""), os.environ.get("POD_NAMESPACE", "")
        identity = f"{pod or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        own_image = partial(image_of, cluster, namespace, pod)
        checks = config.precheck.by_pod
        checkpoints = VerifierPods(
            _mounted(config.checkpoints), cluster, clock, config.checkpoints, own_image, checks=checks
        )
        daemon = ControllerDaemon(
            config,
            ControllerDependencies(
                identity=identity,
                namespace=namespace or config.quarantine.namespace,
                cluster=cluster,
                access=cluster,
                clock=clock,
                adapters=adapters_of(config.gangs),
                checkpoints=checkpoints,
                jitter=random.random,
                looker=checkpoints,
                sinks=make_sinks(config.alerts, clock),
                heartbeat=make_heartbeat(config.heartbeat, clock),
                requests=_requests(config.remediation, cluster, clock, own_image),
            ),
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, daemon.stop)
        log.info("controller.starts", identity=identity)
        await daemon.run()


def _requests(
    policy: RemediationPolicy, cluster: Cluster, clock: Clock, own_image: Callable[[], Awaitable[str]]
) -> Requests | None:
    """The hands of the site; None where it has chosen none, and checks no spares. Raises UserError."""
    if not policy.hands and not policy.check_spares_every:
        return None
    hands, known = hands_of(policy)
    post = Webhooks(clock, Http(clock, proxy_for=proxy_of_environment))
    return Requests(cluster, clock, hands=hands, known=known, own_image=own_image, post=post)


def _mounted(policy: CheckpointsPolicy) -> FileCheckpoints:
    return FileCheckpoints(allowed=policy.allowed, within=policy.verify_within)
