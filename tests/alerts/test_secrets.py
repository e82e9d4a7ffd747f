"""Secrets come from files, follow them, and are never shown."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from healthd.alerts.credentials import CredentialFiles
from healthd.alerts.secrets import LARGEST, Secret, SecretError, SecretFile
from healthd.alerts.sink import Answer
from healthd.core.config.alerts import SinkKind
from tests.alerts.incidents import KEY, PATH_TOKEN, TOKEN, a_policy, a_secret, a_sink, an_incident
from tests.alerts.receivers import answers, receiving

URL = f"https://hooks.example/services/{PATH_TOKEN}?sig={TOKEN}&v=1"


def test_a_secret_shows_nothing_of_itself() -> None:
    secret = Secret(TOKEN)

    assert TOKEN not in f"{secret} {secret!r} {[secret]} {secret.lines}"
    assert secret.reveal() == TOKEN


@pytest.mark.parametrize("part", [URL, PATH_TOKEN, "k3y-in-the-path", TOKEN, f"sig={TOKEN}"])
def test_every_part_of_a_secret_address_is_hidden(part: str) -> None:
    hidden = Secret(URL).hide(f"who has {part}?")

    assert hidden.startswith("who has ")
    assert not [word for word in ("k3y-in-the-path", TOKEN) if word in hidden]


def test_what_a_secret_looks_like_in_a_url_is_hidden_too() -> None:
    assert Secret("a+b/c=").hide("sign=a%2Bb%2Fc%3D") == "sign=[secret]"


def test_the_end_of_line_of_an_editor_is_no_part_of_a_secret(tmp_path: Path) -> None:
    assert SecretFile(a_secret(tmp_path, "key", f"{KEY}\n")).read().reveal() == KEY


async def test_a_new_secret_needs_no_restart(tmp_path: Path) -> None:
    async with receiving(answers(202)) as server:
        sink = a_sink(SinkKind.PAGERDUTY, server.url, tmp_path)
        await sink.send(an_incident(), "")
        a_secret(tmp_path, "token", "another-token")
        await sink.send(an_incident(), "")
        await sink.close()

    assert [request.json["routing_key"] for request in server.received] == [TOKEN, "another-token"]


def unusable(path: Path) -> str:
    """Why the secret in *path* cannot be used."""
    with pytest.raises(SecretError) as caught:
        SecretFile(str(path)).read()
    return str(caught.value)


def test_a_file_that_cannot_be_used_is_named_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert unusable(path) == f"there is no secret file {path}"
    path.write_text(" \n")
    assert unusable(path) == f"the secret file {path} is empty"
    path.write_bytes(b"x" * (LARGEST + 1))
    assert unusable(path) == f"the secret file {path} is larger than 64 KiB"
    path.write_bytes(b"\xff\xfe")
    assert unusable(path) == f"the secret file {path} is not text (UTF-8)"


def test_a_folder_and_a_pipe_are_no_secret_files_and_do_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert unusable(tmp_path / "pipe") == f"the secret file {tmp_path}/pipe is not a file"
    assert f"the secret file {tmp_path}" in unusable(tmp_path)


def test_a_file_that_all_may_read_is_used_and_warned_of_once(tmp_path: Path) -> None:
    """A page that is not sent is the greater harm."""
    file = SecretFile(a_secret(tmp_path, "key", KEY))
    assert file.warning() == ""
    (tmp_path / "key").chmod(0o644)

    with capture_logs() as logs:
        read = [file.read().reveal() for _ in range(3)]

    assert read == [KEY] * 3
    assert [line["event"] for line in logs] == ["alerts.secret_readable_by_all"]
    assert "set its mode to 0400" in file.warning()


def test_the_address_of_a_webhook_must_be_one(tmp_path: Path) -> None:
    policy = a_policy(SinkKind.TEAMS, "http://x", tmp_path)
    a_secret(tmp_path, "url", TOKEN)

    with pytest.raises(SecretError, match="must hold an address that begins with https://") as caught:
        CredentialFiles(policy, "").read()
    assert TOKEN not in str(caught.value)


async def test_a_token_that_would_break_a_header_is_not_sent(tmp_path: Path) -> None:
    async with receiving(answers(202)) as server:
        sink = a_sink(SinkKind.INCIDENT_IO, server.url, tmp_path)
        a_secret(tmp_path, "token", f"{TOKEN}\nX-Other: 1")
        outcome = await sink.send(an_incident(), "")
        await sink.close()

    assert outcome.answer is Answer.RETRY
    assert "has several lines" in outcome.detail
    assert TOKEN not in outcome.detail
