"""The address and the secrets of one alert service, read anew for each message."""

from __future__ import annotations

from typing import NamedTuple

from healthd.alerts.secrets import Secret, SecretError, SecretFile
from healthd.core.config.alerts import SinkPolicy

NOTHING = Secret("")


class Credentials(NamedTuple):
    """What one message needs. What is not configured is empty."""

    url: Secret
    """The address; of an Alertmanager the first one."""
    token: Secret = NOTHING
    key: Secret = NOTHING
    """For signatures."""

    def hide(self, text: str) -> str:
        """*text* without any of the secrets."""
        for secret in self:
            text = secret.hide(text)
        return text


class CredentialFiles:
    """The files of one sink."""

    def __init__(self, config: SinkPolicy, public_url: str) -> None:
        """*public_url* is the address of the service for everybody. Empty: there is none."""
        self._public_url = config.urls[0] if config.urls else public_url
        self._url = SecretFile(config.url_file) if config.url_file else None
        self._token = SecretFile(config.token_file) if config.token_file else None
        self._key = SecretFile(config.secret_file) if config.secret_file else None

    def read(self) -> Credentials:
        """All of them as they are now. Raises SecretError."""
        return Credentials(
            Secret(self._public_url, is_secret=False) if self._url is None else address(self._url),
            NOTHING if self._token is None else one_line(self._token),
            NOTHING if self._key is None else one_line(self._key),
        )

    def warnings(self) -> list[str]:
        """What is wrong with files that can be used all the same."""
        files = [file for file in (self._url, self._token, self._key) if file is not None]
        return [warning for file in files if (warning := file.warning())]


def one_line(file: SecretFile) -> Secret:
    secret = file.read()
    if len(secret.lines) > 1:
        raise SecretError(f"the secret file {file.path} has several lines; one is expected")
    return secret


def address(file: SecretFile) -> Secret:
    secret = one_line(file)
    if not secret.reveal().startswith(("https://", "http://")):
        raise SecretError(f"the secret file {file.path} must hold an address that begins with https://")
    return secret
