"""People who look at the live page with accounts of the cluster, and tokens that no API server should take."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import Any

import aiohttp

from tests.kubernetes.replicas import Replica
from tests.lab.control_plane import ControlPlane

RECOVERIES = "recoveries.healthd.dev"
FLEET = f"{RECOVERIES},nodehealths.healthd.dev,nodes"


class Viewers:
    """Service accounts of one namespace that may look at something."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.namespace = namespace
        self._control_plane = control_plane

    def add(self, name: str) -> str:
        """The token of a new account without rights."""
        self.kubectl("create", "serviceaccount", name)
        return self.token(name)

    def token(self, name: str) -> str:
        """A further token of an account."""
        return self._control_plane.service_account_token(self.namespace, name)

    def token_for(self, audience: str, name: str) -> str:
        """A token that this API server made for somebody else to take."""
        return self.kubectl("create", "token", name, f"--audience={audience}").strip()

    def grant(self, name: str, namespace: str) -> None:
        """Let an account list the recoveries of *namespace*."""
        there = ("-n", namespace)
        self._control_plane.kubectl(*there, "create", "role", name, "--verb=list", f"--resource={RECOVERIES}")
        account = f"--serviceaccount={self.namespace}:{name}"
        self._control_plane.kubectl(*there, "create", "rolebinding", name, f"--role={name}", account)

    def revoke(self, name: str, namespace: str) -> None:
        """Take that away again."""
        self._control_plane.kubectl("-n", namespace, "delete", "rolebinding", name)

    def grant_everything(self, name: str) -> None:
        """Let an account list what the page shows, everywhere."""
        role = f"{self.namespace}-{name}"
        self.kubectl("create", "clusterrole", role, "--verb=list", f"--resource={FLEET}")
        account = f"--serviceaccount={self.namespace}:{name}"
        self.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", account)

    def kubectl(self, *arguments: str) -> str:
        """In the namespace of the accounts."""
        return self._control_plane.kubectl("-n", self.namespace, *arguments)

    def signed_again(self, token: str, **claims: Any) -> str:
        """*token* with other claims, signed with the API server's own key."""
        return signed(str(self._control_plane.directory / "accounts.key"), token, claims)


def bearer(token: str) -> dict[str, str]:
    """The header of a request."""
    return {"Authorization": f"Bearer {token}"}


async def asked(url: str, **headers: str) -> tuple[int, str]:
    """The status and the text of the answer to who wants to look."""
    async with aiohttp.ClientSession(headers=headers) as client, client.get(f"{url}/api/stream") as answer:
        return answer.status, "" if answer.status == 200 else await answer.text()


async def page_of(replica: Replica) -> str:
    """Where a replica serves its page."""
    await replica.says("page.serving")
    lines = map(json.loads, filter(lambda line: "page.serving" in line, replica.log.read_text().splitlines()))
    return str(next(lines)["url"])


def signed(key: str, token: str, claims: dict[str, Any]) -> str:
    """A token with the header of *token*, its claims but for *claims*, and a signature of the private key in a file."""
    header, body, _ = token.split(".")
    changed = json.loads(base64.urlsafe_b64decode(body + "==")) | claims
    text = f"{header}.{_unpadded(json.dumps(changed).encode())}"
    command = ["openssl", "dgst", "-sha256", "-sign", key]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    return f"{text}.{_unpadded(_both_numbers(done.stdout))}"


def _both_numbers(signature: bytes) -> bytes:
    """An ECDSA signature as JWS has it, from DER: two numbers of 32 bytes."""
    first_size = signature[3]
    numbers = signature[4 : 4 + first_size], signature[6 + first_size :]
    return b"".join(each.lstrip(b"\0").rjust(32, b"\0") for each in numbers)


def _unpadded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
