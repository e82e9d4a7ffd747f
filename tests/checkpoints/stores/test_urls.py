"""What a person may write for a place, and what is said when nothing can be read there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from healthd.checkpoints.stores.clients import CannotConnect, read_settings
from healthd.checkpoints.stores.urls import NoSuchStore, locate


@pytest.mark.parametrize("text", ["/data/run", "file:///data/run"])
def test_a_path_is_a_path(text: str) -> None:
    assert locate(text) == Path("/data/run")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket/run/7b", "s3://bucket/run/7b"),
        ("s3://bucket//run/", "s3://bucket/run"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a#b?c", "s3://bucket/a#b?c"),
        ("gs://bucket/run", "gs://bucket/run"),
    ],
)
def test_a_bucket_is_named_as_everywhere(text: str, url: str) -> None:
    assert str(locate(text, {"HOME": "/nowhere"})) == url


def test_a_place_in_a_bucket_has_the_words_of_a_path() -> None:
    place = locate("s3://bucket/run", {}) / "step-10"

    assert (place.name, str(place.parent), str(place.parent.parent)) == ("step-10", "s3://bucket/run", "s3://bucket")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http://host/run", "one of s3://"),
        ("hdfs://host/run", "no kind of store that healthd can read"),
        ("file://data/run", "three slashes"),
        ("s3:///run", "without a bucket"),
        ("s3://bucket/../secrets", "no meaning"),
        ("s3://[bucket", "no URL"),
    ],
)
def test_what_names_no_store_is_reported_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(NoSuchStore, match=says):
        locate(text, {})


def test_without_the_extra_it_says_what_to_install() -> None:
    without = "import sys; sys.modules['obstore'] = None; from healthd.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", without, "checkpoints", "latest", "gs://bucket/run"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "pip install 'healthd[gcs]'" in done.stderr


def test_the_environment_wins_over_the_files(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\nendpoint_url = https://store.example\n")

    settings = read_settings({"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_REGION": "us-west-2"})

    assert settings == {"region": "us-west-2", "endpoint": "https://store.example"}


def test_keys_of_the_named_profile_are_taken(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
        "[team]\naws_access_key_id = c\naws_secret_access_key = d%\naws_session_token = e\n"
    )

    settings = read_settings({"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"), "AWS_PROFILE": "team"})

    assert settings == {"access_key_id": "c", "secret_access_key": "d%", "session_token": "e"}


def test_web_identity_is_not_overruled_by_keys_in_files(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")

    settings = read_settings(
        {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"), "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token"}
    )

    assert settings == {}


def test_a_profile_that_assumes_a_role_is_left_to_boto3(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile team]\nrole_arn = arn:aws:iam::1:role/train\nsource_profile = base\n")

    settings = read_settings({"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_PROFILE": "team"})

    assert settings == {"profile": "team"}


def test_a_torn_file_of_settings_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("region = eu-west-1\n")

    with pytest.raises(CannotConnect, match=r"config: cannot be read"):
        read_settings({"AWS_CONFIG_FILE": str(tmp_path / "config")})
