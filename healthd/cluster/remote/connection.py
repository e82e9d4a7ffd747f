"""
How to reach an API server: an address, credentials, and the trusted CA. It makes no requests.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple, Protocol


class Access(NamedTuple):
    """What one request needs. Each request gets a new one, because tokens and certificates expire."""

    url: str
    """Scheme, host and port, perhaps a path: `https://10.0.0.1:443`."""
    source: str
    """Where this access comes from, for messages: `the service account of this pod`."""
    authorization: str = ""
    """Value of the header; empty when a client certificate authenticates us."""
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """The name that the server's certificate must have, when it is not the name in the address."""
    proxy: str | None = None


class Connection(Protocol):
    """Keeps the access to one API server current."""

    async def access(self, *, fresh: bool = False) -> Access:
        """
        The current access. *fresh*: the server refused the last one, so read or request it again.

        Raises Unusable for a configuration that cannot work, Unavailable where trying again may help.
        """
        ...
