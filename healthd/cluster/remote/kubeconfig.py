"""
The access from a person's kubeconfig, with all that it may contain: tokens, certificates, exec plugins, OIDC.

`kubernetes.aio` reads it. It is for the command line and for a controller outside of its cluster, never for the agent:
the package's docstring says what it costs.
"""

from __future__ import annotations

import asyncio
import base64
import logging
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
from healthd.http_errors import why_failed

logging.getLogger("kubernetes.aio.config").setLevel(logging.ERROR)
"""It warns about a missing file; healthd refuses such a file with its own message."""
REREAD = timedelta(minutes=1)
"""How often the file is read again: other programs replace tokens in it, and files that it names."""
EARLY = timedelta(minutes=1)
"""How long before its expiry a plugin's credential is requested again."""
_PROVIDER_LIMIT = aiohttp.ClientTimeout(total=30)
_ENOUGH = timedelta(seconds=1)
"""When many requests are refused at once, the first one renews the access for all."""


def from_kubeconfig(path: Path | None = None, context: str | None = None, *, clock: Clock) -> KubeConfig:
    """
    The access from *path* and *context*; None: as kubectl chooses ($KUBECONFIG, ~/.kube/config; the current context).

    The file is read only when it is needed.
    """
    return KubeConfig(_paths(path), context, clock)


def namespace_of(path: Path | None = None, context: str | None = None) -> str:
    """The namespace that kubectl would use with *path* and *context*. Raises Unusable for a file that cannot work."""
    paths = _paths(path)
    try:
        found: Any = _loader(paths, context).current_context["context"]
    except (ConfigException, YAMLError, OSError, ValueError) as error:
        raise Unusable(f"kubeconfig {paths}: {error}") from error
    return str(found.get("namespace") or "default")


def _paths(path: Path | None) -> str:
    return str(path) if path else os.environ.get("KUBECONFIG") or str(Path.home() / ".kube/config")


class KubeConfig:
    """A `Connection` from the files in *paths* (as $KUBECONFIG lists them)."""

    def __init__(self, paths: str, context: str | None, clock: Clock) -> None:
        self._paths = paths
        self._context = context
        self._clock = clock
        self._access: Access | None = None
        self._read_at = clock.now()
        self._until = clock.now()
        self._reading = asyncio.Lock()

    async def access(self, *, fresh: bool = False) -> Access:
        """The current access. Raises Unusable for a file that cannot work, Unavailable when a plugin or OIDC fails."""
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
            loader: Any = _loader(self._paths, self._context)
            await loader.load_and_set(configuration)
            tls = _trust(configuration)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(
                f"kubeconfig {self._paths}: cannot renew the credentials: {_why_not_renewed(error)}"
            ) from error
        except (ConfigException, YAMLError, OSError, ValueError) as error:
            raise Unusable(f"kubeconfig {self._paths}: {error}") from error
        expiry: datetime | None = getattr(loader, "exec_plugin_expiry", None)
        source = f"kubeconfig {self._paths}, context {loader.current_context['name']}"
        access = Access(
            url=configuration.host,
            source=source,
            authorization=configuration.api_key.get("BearerToken", ""),
            tls=tls,
            server_name=configuration.tls_server_name,
            proxy=getattr(loader, "proxy", None),  # the configuration's proxy may come from the environment
        )
        return access, expiry and expiry - EARLY


class _Loader(KubeConfigLoader):
    """
    Renews OIDC tokens over verified connections, and writes them back: providers accept a refresh token only once.

    kubernetes 37 verifies the provider's certificate only when the file names a CA, and then it fails.
    """

    async def _refresh_oidc(self, provider: Any) -> None:
        config: dict[str, str] = provider["config"].value
        tokens = await _renewed(config)
        config["id-token"] = tokens["id_token"]
        config["refresh-token"] = tokens.get("refresh_token", config["refresh-token"])
        self._config_persister(self._config.value)


async def _renewed(config: dict[str, str]) -> dict[str, str]:
    missing = [key for key in ("client-id", "idp-issuer-url", "refresh-token") if not config.get(key)]
    if missing:
        raise ConfigException(f"oidc: the token has expired, and cannot be renewed without {missing[0]}")
    tls = ssl.create_default_context(
        cafile=config.get("idp-certificate-authority"),
        cadata=base64.b64decode(config.get("idp-certificate-authority-data", "")).decode() or None,
    )
    secret = f"{config['client-id']}:{config.get('client-secret', '')}".encode()
    who = {"Authorization": f"Basic {base64.b64encode(secret).decode()}"}
    form = {"grant_type": "refresh_token", "refresh_token": config["refresh-token"], "client_id": config["client-id"]}
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls), raise_for_status=True, trust_env=True, timeout=_PROVIDER_LIMIT
    )
    async with session:
        async with session.get(f"{config['idp-issuer-url'].rstrip('/')}/.well-known/openid-configuration") as response:
            endpoint = (await response.json())["token_endpoint"]
        async with session.post(endpoint, data=form, headers=who) as answer:
            tokens: dict[str, str] = await answer.json()
            return tokens


def _why_not_renewed(error: Exception) -> str:
    match error:
        case aiohttp.ClientResponseError():
            return str(error)
        case aiohttp.ClientConnectorError():
            return f"{error.host}:{error.port}: {why_failed(error)}"
        case _:
            return why_failed(error)


def _loader(paths: str, context: str | None) -> _Loader:
    merger: Any = KubeConfigMerger(paths)  # type: ignore[no-untyped-call]  # the package is half typed
    if merger.config is None:
        raise ConfigException("there is no such file")
    return _Loader(  # type: ignore[no-untyped-call]  # as above
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
