"""
How to reach an API server: an address, credentials, and whom to trust. Knows nothing of requests.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple, Protocol


class Access(NamedTuple):
    """What one request needs. Handed out anew for each, because tokens and certificates expire."""

    url: str
    """Scheme, host and port, perhaps a path: `https://10.0.0.1:443`."""
    source: str
    """Where all this comes from, for messages: `the service account of this pod`."""
    authorization: str = ""
    """Value of the header; empty where a client certificate says who we are."""
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """The name that the server's certificate must carry, where it is not that of the address."""
    proxy: str | None = None


class Connection(Protocol):
    """Keeps the access to one API server current."""

    async def access(self, *, fresh: bool = False) -> Access:
        """
        The access of now. *fresh*: what was handed out before was refused, so read or ask for it again.

        Raises Unusable for a configuration that cannot work, Unavailable where trying again may help.
        """
        ...


class Fixed:
    """A `Connection` whose access never changes."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def access(self, *, fresh: bool = False) -> Access:
        """Always the same."""
        del fresh
        return self._access
