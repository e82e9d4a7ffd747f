"""
What went wrong with an HTTP request, in words and without its URL: a URL is often a password, and the errors of the
HTTP client show it.
"""

from __future__ import annotations

import aiohttp


def why_failed(error: Exception) -> str:
    """Why a request failed. It never holds the path, the query or the user of a URL."""
    match error:
        case aiohttp.ClientConnectorError():
            return _why_not_connected(error)
        case aiohttp.TooManyRedirects():
            return "one redirect leads to the next, without end"
        case aiohttp.RedirectClientError():
            return "the redirect of the server leads to no web address"
        case aiohttp.InvalidURL():
            return "this is no valid address"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered {error.status}"
        case TimeoutError():
            return "nothing came in time"
        case aiohttp.ClientConnectionError():
            return "the connection broke"
        case aiohttp.ClientPayloadError():
            return "the answer broke off"
        case aiohttp.ClientError():
            return "the answer is not HTTP"
        case OSError():
            return error.strerror or type(error).__name__
        case _:
            return "the request cannot be built"


def _why_not_connected(error: aiohttp.ClientConnectorError) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            reason = getattr(error.certificate_error, "verify_message", "") or "it is not valid"
            return f"the certificate of the server is not trusted: {reason}"
        case aiohttp.ClientConnectorDNSError():
            return "the name cannot be resolved"
        case aiohttp.ClientProxyConnectionError():
            return f"cannot connect to the proxy: {error.os_error.strerror or error.os_error}"
        case aiohttp.ClientConnectorSSLError():
            reason = str(getattr(error.os_error, "reason", "")).replace("_", " ").lower()  # WRONG_VERSION_NUMBER
            return f"TLS failed: {reason}" if reason else "TLS failed"
        case _:
            return f"cannot connect: {error.os_error.strerror or error.os_error}"
