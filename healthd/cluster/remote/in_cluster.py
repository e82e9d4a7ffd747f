"""
The access of a pod to its own API server: the files that the kubelet puts into every pod with a service account.

The kubelet replaces the token before it expires, and the CA when the cluster's CA is rotated. Both are read again every
minute, and at once when the server refuses.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from healthd.clock import Clock
from healthd.cluster.port import Unusable
from healthd.cluster.remote.connection import Access

log = structlog.get_logger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD = timedelta(minutes=1)


def in_cluster(clock: Clock, *, environ: Mapping[str, str] = os.environ, files: Path = SERVICE_ACCOUNT) -> InCluster:
    """The access of this pod. Raises Unusable when this process does not run in a pod with a service account."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not (host and port):
        raise Unusable(
            "not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; outside a cluster, name a "
            "kubeconfig"
        )
    return InCluster(f"https://{f'[{host}]' if ':' in host else host}:{port}", files, clock)


class InCluster:
    """A `Connection` with the token and the CA in *files*."""

    def __init__(self, url: str, files: Path, clock: Clock) -> None:
        self._url = url
        self._files = files
        self._clock = clock
        self._authority = b""
        self._access: Access | None = None
        self._reread_at: datetime = clock.now()

    async def access(self, *, fresh: bool = False) -> Access:
        """The current access. Raises Unusable when none was ever read; later, the last readable one stays in use."""
        now = self._clock.now()
        if self._access is None or fresh or now >= self._reread_at:
            self._reread_at = now + REREAD
            self._access = self._read(self._access)
        return self._access

    def _read(self, former: Access | None) -> Access:
        try:
            token = (self._files / "token").read_text().strip()
            authority = (self._files / "ca.crt").read_bytes()
            if former and authority == self._authority:
                return former._replace(authorization=f"Bearer {token}")
            tls = ssl.create_default_context(cadata=authority.decode())
        except (OSError, ValueError, ssl.SSLError) as error:
            if former is None:
                raise Unusable(f"cannot read the service account in {self._files}: {error}") from error
            log.warning("service_account.unreadable", files=str(self._files), error=str(error))
            return former
        self._authority = authority
        return Access(self._url, "the service account of this pod", f"Bearer {token}", tls)
