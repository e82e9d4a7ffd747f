"""
Clients of buckets, with the credentials and settings that the platform provides.

obstore itself reads the environment, web identity (IRSA and similar) and the metadata services of all three clouds.
The files of the AWS command line are read here. Nothing is asked from a person, nothing is stored.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

TIMEOUT = timedelta(seconds=30)
"""The limit for one request. A request that does not finish in this time is repeated."""
RETRIES = {"max_retries": 8, "retry_timeout": timedelta(seconds=60)}
"""A store under load answers 503 and 429. With doubled waits from 0.1 s, it has a minute to recover."""

_VARIABLES = {
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
}


class CannotConnect(ValueError):
    """The platform's settings make no client. The message says which settings."""


def open_bucket(scheme: str, bucket: str, environment: Mapping[str, str]) -> Client:
    """
    The client of a bucket. The same settings give the same client. Sends no request yet. Raises CannotConnect.
    """
    settings = read_settings(environment) if scheme == "s3" else {}
    return _client(scheme, bucket, tuple(sorted(settings.items())), _allow_http(environment))


@cache
def _client(scheme: str, bucket: str, settings: tuple[tuple[str, str], ...], allow_http: bool) -> Client:
    """Cached, because a client holds connections and short-lived credentials."""
    from obstore.exceptions import BaseError

    configured: dict[str, Any] = dict(settings)
    options = {"client_options": {"timeout": TIMEOUT, "allow_http": allow_http}, "retry_config": RETRIES}
    try:
        return _open(scheme, bucket, {**configured, **options})
    except (BaseError, ValueError) as error:
        raise CannotConnect(str(error)) from error


def _open(scheme: str, bucket: str, options: dict[str, Any]) -> Client:
    from obstore.store import AzureStore, GCSStore, S3Store

    match scheme:
        case "s3" if profile := options.pop("profile", ""):
            return S3Store(bucket, credential_provider=_credentials_by_boto3(profile), **options)
        case "s3":
            return S3Store(bucket, **options)
        case "gs":
            return GCSStore(bucket, **options)
        case "abfss":
            return AzureStore.from_url(f"abfss://{bucket}", **options)
        case _:
            return AzureStore(bucket, **options)


def _allow_http(environment: Mapping[str, str]) -> bool:
    """
    Whether plain HTTP is allowed: only for an endpoint set explicitly, other than the platform's own, such as one in
    the same rack.
    """
    return any(environment.get(name, "").startswith("http://") for name in _VARIABLES["endpoint"])


def read_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """
    Settings for S3: from the environment, and for unset values from the files of the AWS command line.

    A profile that gets its credentials otherwise than by keys (a role, SSO, a program) is left to boto3, as `profile`.
    Raises CannotConnect.
    """
    found = {}
    for setting, variables in _VARIABLES.items():
        if value := next((environment[name] for name in variables if environment.get(name)), ""):
            found[setting] = value
    profile = environment.get("AWS_PROFILE", "default")
    configured = _read_profile(profile, environment)
    for setting, key in (("region", "region"), ("endpoint", "endpoint_url")):
        if configured.get(key):
            found.setdefault(setting, configured[key])
    has_keys = "access_key_id" in found or environment.get("AWS_WEB_IDENTITY_TOKEN_FILE")
    return found if has_keys else found | _keys_of(profile, configured)


def _keys_of(profile: str, configured: Mapping[str, str]) -> dict[str, str]:
    if configured.get("aws_access_key_id") and configured.get("aws_secret_access_key"):
        keys = {
            "access_key_id": configured["aws_access_key_id"],
            "secret_access_key": configured["aws_secret_access_key"],
        }
        return keys | (
            {"session_token": configured["aws_session_token"]} if configured.get("aws_session_token") else {}
        )
    needs_more = any(configured.get(key) for key in ("role_arn", "sso_session", "sso_start_url", "credential_process"))
    return {"profile": profile} if needs_more else {}


def _read_profile(profile: str, environment: Mapping[str, str]) -> dict[str, str]:
    home = Path(environment.get("HOME", "/nonexistent"), ".aws")
    files = (
        (
            environment.get("AWS_CONFIG_FILE") or home / "config",
            profile if profile == "default" else f"profile {profile}",
        ),
        (environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", profile),
    )
    configured: dict[str, str] = {}
    for file, section in files:
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError) as error:
            raise CannotConnect(f"{file}: cannot be read: {error}") from error
        if parser.has_section(section):
            configured.update(parser[section])
    return configured


def _credentials_by_boto3(profile: str) -> Any:
    try:
        boto3: Any = import_module("boto3")
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        why = f"profile {profile!r} gets its credentials by a role, by SSO or from a program"
        raise CannotConnect(f"{why}: pip install boto3, or put keys into the environment") from error
    return Boto3CredentialProvider(boto3.Session(profile_name=profile))
