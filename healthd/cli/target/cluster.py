"""Which Kubernetes cluster a command is about: the one of a kubeconfig, or the one that this process runs in."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from healthd.clock import Clock
from healthd.core.config import Config

if TYPE_CHECKING:
    from healthd.cluster.remote import Connection

E = TypeVar("E", bound=BaseException)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say which cluster is meant."""
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="how to reach the cluster (as kubectl chooses)")
    parser.add_argument("--context", default="", metavar="NAME", help="the context in the kubeconfig")


def is_named(args: argparse.Namespace) -> bool:
    """Whether an option names a cluster."""
    return bool(args.kubeconfig or args.context)


def is_inside(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in a pod."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))


def is_known(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether kubectl would find a kubeconfig here."""
    home = environ.get("HOME")
    return bool(environ.get("KUBECONFIG")) or (home is not None and Path(home, ".kube", "config").is_file())


def connection(args: argparse.Namespace, clock: Clock) -> Connection:
    """The way to the cluster. Raises Unusable where there is none."""
    from healthd.cluster.remote import in_cluster  # imported here: a run on this machine needs no client

    if is_inside() and not is_named(args):
        return in_cluster(clock)
    from healthd.cluster.remote.kubeconfig import from_kubeconfig  # imported here: 20 MB that pods do not need

    return from_kubeconfig(args.kubeconfig, args.context or None, clock=clock)


def namespace(args: argparse.Namespace) -> str:
    """The one that an option names, else the one that kubectl would take. Raises Unusable where there is no cluster."""
    if args.namespace:
        return str(args.namespace)
    from healthd.cluster.remote.in_cluster import SERVICE_ACCOUNT  # imported here: as above

    if is_inside() and not is_named(args):
        own = SERVICE_ACCOUNT / "namespace"
        return own.read_text().strip() if own.is_file() else "default"
    from healthd.cluster.remote.kubeconfig import namespace_of  # imported here: as above

    return namespace_of(args.kubeconfig, args.context or None)


def serving_at(config: Config, address: str) -> Config:
    """The command line beats the file."""
    return msgspec.structs.replace(config, http=msgspec.structs.replace(config.http, address=address))


def first_of(group: BaseExceptionGroup[BaseException], kind: type[E]) -> E | None:
    """The first error of *kind* in a group that holds no other; None where it holds others, too."""
    matching, rest = group.split(kind)
    if matching is None or rest is not None:
        return None
    first = matching.exceptions[0]
    return first_of(first, kind) if isinstance(first, BaseExceptionGroup) else first
