"""Whether the configuration would open the live page to everyone who reaches its address."""

from __future__ import annotations

from healthd.core.config import WebAccess, WebPolicy
from healthd.telemetry.address import AddressError, is_loopback


def check_exposure(policy: WebPolicy) -> None:
    """Raises AddressError where *policy* would open the page to everyone."""
    if not policy.address or policy.access is WebAccess.TOKEN or is_loopback(policy.address):
        return
    if policy.access is WebAccess.LOCAL:
        raise AddressError(
            f"web.address {policy.address} is open to others, and web.access is local, which lets every viewer in: "
            "listen on 127.0.0.1, or set web.access to token or proxy"
        )
    if not policy.proxy_secret_file:
        raise AddressError(
            f"web.address {policy.address} is open to others, and web.access is proxy without web.proxy_secret_file: "
            "anyone could name a user"
        )
