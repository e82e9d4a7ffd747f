"""Where to listen, as people write it: `127.0.0.1:9400`, `[::1]:9400` or `:9400`."""

from __future__ import annotations

import re
from typing import NamedTuple

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<name>[^\[\]:/\s]*)):(?P<port>\d{1,5})", re.ASCII)
_EXAMPLES = "write host:port, such as 127.0.0.1:9400, [::1]:9400 or :9400"


class Address(NamedTuple):
    """*host* is None for every interface; *port* 0 takes a free one."""

    host: str | None
    port: int

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


class AddressError(ValueError):
    """An address that is none, or on which we cannot listen; the text is for the person who wrote it."""


def parse_address(text: str) -> Address:
    """Read one address. Raises AddressError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise AddressError(f"{text!r} is not an address; {_EXAMPLES}")
    port = int(match["port"])
    if port > 65535:
        raise AddressError(f"{text!r} is not an address: the highest port is 65535")
    return Address(match["v6"] or match["name"] or None, port)
