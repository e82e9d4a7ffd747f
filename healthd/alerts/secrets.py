"""
Secrets of alert services. They come from files only, are read anew for each message, and never reach a log.

`Secret` shows nothing of itself when it is printed; `hide` takes it out of texts that come from outside, such as the
answer of a server that repeats what it got.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import structlog

log = structlog.get_logger(__name__)

LARGEST = 64 * 1024
"""Bytes of a secret file. The longest secrets are certificates; a key has less than 1 KiB."""
SHORTEST_PART = 8
"""Characters. A shorter part of a secret address, such as `v2` or `hook`, is no secret."""
HIDDEN = "[secret]"


class SecretError(Exception):
    """A secret cannot be read. The message names the file and what to do."""


class Secret:
    """A secret text. It is never printed; `reveal` gives it to the code that sends it."""

    __slots__ = ("_is_secret", "_text")

    def __init__(self, text: str, *, is_secret: bool = True) -> None:
        self._text = text
        self._is_secret = is_secret

    def __repr__(self) -> str:
        return "Secret()"

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    @property
    def lines(self) -> list[Secret]:
        """Each line that is not empty, as a secret of its own."""
        return [Secret(line.strip()) for line in self._text.splitlines() if line.strip()]

    def hide(self, text: str) -> str:
        """*text* without this secret, its parts, and what they look like in a URL."""
        for part in sorted(self._parts() if self._is_secret else (), key=len, reverse=True):
            text = text.replace(part, HIDDEN)
        return text

    def _parts(self) -> set[str]:
        lines = [line.reveal() for line in self.lines]
        found = {self._text, *lines} | {part for line in lines if "://" in line for part in _parts_of_url(line)}
        return {form for part in found if part for form in (part, quote(part, safe=""), unquote(part))}


def _parts_of_url(url: str) -> set[str]:
    parts = urlsplit(url)
    words = [*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query)), parts.password or "", parts.query]
    return {word for word in words if len(word) >= SHORTEST_PART}


class SecretFile:
    """The secret in the file *path*."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._warned = False

    def read(self) -> Secret:
        """The secret as it is now. Raises SecretError."""
        text, mode = self._content()
        if not text.strip():
            raise SecretError(f"the secret file {self.path} is empty")
        self._warn_once(bool(mode & stat.S_IROTH))
        return Secret(text.strip())

    def warning(self) -> str:
        """What is wrong with a file that can be used all the same. Empty when nothing is. It is not logged as well."""
        try:
            mode = Path(self.path).stat().st_mode
        except OSError:
            return ""
        self._warned = bool(mode & stat.S_IROTH)
        return self._open_to_all() if self._warned else ""

    def _open_to_all(self) -> str:
        return (
            f"every user of this machine can read the secret file {self.path}; set its mode to 0400, "
            "on Kubernetes with `defaultMode: 0440` and a fsGroup"
        )

    def _warn_once(self, is_open: bool) -> None:
        """Such a secret is used: a page that is not sent is the greater harm."""
        if is_open and not self._warned:
            log.warning("alerts.secret_readable_by_all", path=self.path, why=self._open_to_all())
        self._warned = is_open

    def _content(self) -> tuple[str, int]:
        try:
            number = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not block
        except FileNotFoundError:
            raise SecretError(f"there is no secret file {self.path}") from None
        except OSError as error:
            raise SecretError(f"cannot read the secret file {self.path}: {error.strerror}") from None
        try:
            return self._checked(number), os.fstat(number).st_mode
        finally:
            os.close(number)

    def _checked(self, number: int) -> str:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise SecretError(f"the secret file {self.path} is not a file")
        content = os.read(number, LARGEST + 1)
        if len(content) > LARGEST:
            raise SecretError(f"the secret file {self.path} is larger than {LARGEST >> 10} KiB")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise SecretError(f"the secret file {self.path} is not text (UTF-8)") from None
