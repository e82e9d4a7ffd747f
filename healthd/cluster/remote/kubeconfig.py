"""
The access of a person's kubeconfig, with everything that it may hold: tokens, certificates, exec plugins, OIDC.

`kubernetes.aio` reads it. Importing this module costs over 20 MB of memory: it is for the command line and for a
controller outside of its cluster, never for the agent.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger
from yaml import YAMLError

from healthd.clock import Clock
from healthd.cluster.port import Unavailable, Unusable
from healthd.cluster.remote.connection import Access

REREAD = timedelta(minutes=1)
"""How often the file is read again: tokens in it, and files that it names, are replaced by other programs."""
EARLY = timedelta(minutes=1)
"""So long before it expires, what a plugin gave is asked for anew."""
_ENOUGH = timedelta(seconds=1)
"""Of many requests that are refused at once, the first renews for all."""


def from_kubeconfig(path: Path | None = None, context: str | None = None, *, clock: Clock) -> KubeConfig:
    """
    The access by *path* and *context*; None: as kubectl chooses ($KUBECONFIG, ~/.kube/config; the current context).

    Nothing is read before it is needed.
    """
    paths = str(path) if path else os.environ.get("KUBECONFIG") or str(Path.home() / ".kube/config")
    return KubeConfig(paths, context, clock)


class KubeConfig:
    """A `Connection` by the files in *paths* (as $KUBECONFIG lists them)."""

    def __init__(self, paths: str, context: str | None, clock: Clock) -> None:
        self._paths = paths
        self._context = context
        self._clock = clock
        self._access: Access | None = None
        self._read_at = clock.now()
        self._until = clock.now()
        self._reading = asyncio.Lock()

    async def access(self, *, fresh: bool = False) -> Access:
        """The access of now. Raises Unusable for a file that cannot work, Unavailable where a plugin or OIDC fails."""
        async with self._reading:
            now = self._clock.now()
            is_old = now >= self._until or (fresh and now >= self._read_at + _ENOUGH)
            if self._access is None or is_old:
                self._access, expiry = await self._read()
                self._read_at, self._until = now, expiry or now + REREAD
            return self._access

    async def _read(self) -> tuple[Access, datetime | None]:
        configuration = Configuration()
        try:
            loader = _loader(self._paths, self._context)
            await loader.load_and_set(configuration)
            tls = _trust(configuration)
        except (ConfigException, YAMLError, OSError, ValueError, ssl.SSLError) as error:
            raise Unusable(f"kubeconfig {self._paths}: {error}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(f"kubeconfig {self._paths}: cannot renew the credentials: {error}") from error
        expiry: datetime | None = getattr(loader, "exec_plugin_expiry", None)
        source = f"kubeconfig {self._paths}, context {loader.current_context['name']}"
        access = Access(
            url=configuration.host,
            source=source,
            authorization=configuration.api_key.get("BearerToken", ""),
            tls=tls,
            server_name=configuration.tls_server_name,
            proxy=getattr(loader, "proxy", None),  # the configuration's own may come from the environment
        )
        return access, expiry and expiry - EARLY


def _loader(paths: str, context: str | None) -> Any:
    """
    A loader that writes renewed OIDC tokens back: providers accept a refresh token only once.

    `load_kube_config(persist_config=True)` of kubernetes 37 saves once, before anything changed, and never again.
    """
    merger: Any = KubeConfigMerger(paths)  # type: ignore[no-untyped-call]  # the package is half typed
    if merger.config is None:
        raise ConfigException("there is no such file")
    return KubeConfigLoader(  # type: ignore[no-untyped-call]  # as above
        config_dict=merger.config,
        active_context=context,
        config_base_path=None,
        config_persister=lambda _: merger.save_changes(),
    )


def _trust(configuration: Any) -> ssl.SSLContext:
    tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
