"""
What the address of a service may be, and the addresses to which alerts never go: link-local ones, and the metadata
services of clouds, which give out secrets.

The check is of the address that is connected to. So it holds for a name, whatever it resolves to at that moment, and
for every way to write an address.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

_METADATA = [
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16",  # link-local; AWS, GCP, Azure, OpenStack answer at 169.254.169.254
        "fe80::/10",
        "fd00:ec2::/32",  # AWS
        "fd20:ce::/32",  # GCP
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure
        "192.0.0.192/32",  # Oracle Cloud
    )
]
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


SCHEMES = ("https", "http")


class BadAddress(ValueError):
    """This cannot be the address of a service. The message does not hold it: it may be a secret."""


class ForbiddenAddress(OSError):
    """The server has an address to which healthd does not connect."""


def check_service(url: str) -> None:
    """Raises BadAddress where *url* can never be the address of a service, as far as that is seen without a request."""
    host_of(url, SCHEMES)


def host_of(url: str, schemes: tuple[str, ...]) -> str:
    """The host of a service. Raises BadAddress, also for a forbidden one: behind a proxy nothing else looks at it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise BadAddress("the address of the service is not a URL") from None
    if parts.scheme not in schemes:
        raise BadAddress(f"the address of the service must begin with {schemes[0]}://")
    if not host or parts.username or parts.password:
        raise BadAddress("the address of the service must name a host, and no user or password")
    if _is_forbidden_literal(host):
        raise BadAddress(f"{host}: cannot connect: {why_forbidden(host)}")
    return host


def _is_forbidden_literal(host: str) -> bool:
    try:
        return forbidden(host)
    except ValueError:  # a name: it is judged when it is resolved
        return False


def forbidden(address: str) -> bool:
    """Whether *address* is link-local, a metadata service, or no address of one server."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    return any(
        each.is_unspecified or each.is_multicast or any(each in network for network in _METADATA) for each in _forms(ip)
    )


def _forms(ip: Ip) -> list[Ip]:
    """*ip*, and the IPv4 address that it stands for."""
    if isinstance(ip, ipaddress.IPv4Address):
        return [ip]
    inner = [ip.ipv4_mapped, ip.sixtofour, *(ip.teredo or ())]
    if ip in _NAT64:
        inner.append(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    return [ip, *(each for each in inner if each is not None)]


def guarded_socket(info: tuple[Any, ...]) -> socket.socket:
    """The socket for one resolved address. So the check is of the address that is really connected to."""
    family, kind, protocol, _, address = info
    if forbidden(address[0]):
        raise ForbiddenAddress(None, why_forbidden(address[0]))
    return socket.socket(family=family, type=kind, proto=protocol)


def why_forbidden(address: str) -> str:
    """For an error message."""
    return f"healthd does not connect to the link-local or metadata address {address}"
