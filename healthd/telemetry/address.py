"""Parse listen addresses: `127.0.0.1:9400`, `[::1]:9400` or `:9400`."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<name>[^\[\]:/\s]*)):(?P<port>\d{1,5})", re.ASCII)
_EXAMPLES = "write host:port, such as 127.0.0.1:9400, [::1]:9400 or :9400"


class Address(NamedTuple):
    """A listen address. *host* None: every interface; *port* 0: any free port."""

    host: str | None
    port: int

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class AddressError(ValueError):
    """The address is not valid, or healthd cannot listen on it; the text is for the person who wrote it."""


def parse_address(text: str) -> Address:
    """Parse one address. Raises AddressError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise AddressError(f"{text!r} is not an address; {_EXAMPLES}")
    port = int(match["port"])
    if port > 65535:
        raise AddressError(f"{text!r} is not an address: the highest port is 65535")
    return Address(match["v6"] or match["name"] or None, port)


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches *address*. Raises AddressError."""
    host = parse_address(address).host
    if host is None:
        return False
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
