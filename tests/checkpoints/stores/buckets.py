"""What tests put into a bucket, and how they look at it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.store import S3Store

from healthd.checkpoints.stores.objects import ObjectPath, ObjectStore
from healthd.checkpoints.stores.urls import locate
from tests.lab.s3 import BUCKET


class Bucket:
    """One folder of the lab's bucket, with the credentials of *environment*."""

    def __init__(self, environment: Mapping[str, str], folder: str) -> None:
        self.environment = environment
        self.folder = folder
        self.url = f"s3://{BUCKET}/{folder}"
        self._client = client(environment)

    def at(self, name: str = "") -> ObjectPath:
        """The place as a user names it."""
        place = locate(f"{self.url}/{name}", self.environment)
        assert isinstance(place, ObjectPath)
        return place

    def put(self, name: str, data: bytes) -> None:
        """One whole object."""
        obstore.put(self._client, f"{self.folder}/{name}", data)

    def delete(self, name: str) -> None:
        """Without a trace: the bucket has no versions."""
        obstore.delete(self._client, f"{self.folder}/{name}")

    def upload(self, source: Path) -> None:
        """All files below *source*, under its own name."""
        files = [path for path in source.rglob("*") if path.is_file()] if source.is_dir() else [source]
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda file: self.put(str(file.relative_to(source.parent)), file.read_bytes()), files):
                pass

    def begin_upload(self, name: str, size: int) -> object:
        """An upload of which one part is there, and which is never completed; keep what is returned."""
        writer = obstore.open_writer(self._client, f"{self.folder}/{name}", buffer_size=5 << 20)
        writer.write(bytes(size))
        return writer


def client(environment: Mapping[str, str], **changes: str) -> S3Store:
    """A client of its own that does not try for long."""
    return S3Store(
        BUCKET,
        endpoint=environment["AWS_ENDPOINT_URL"],
        region=environment["AWS_REGION"],
        access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=changes.get("secret_access_key", environment["AWS_SECRET_ACCESS_KEY"]),
        client_options={"allow_http": True, "timeout": timedelta(seconds=10)},
        retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=5)},
    )


def impatient(bucket: Bucket, environment: Mapping[str, str], **changes: str) -> ObjectPath:
    """The same folder through another client, which gives up soon."""
    return ObjectPath(f"s3://{BUCKET}", bucket.folder, ObjectStore(client(environment, **changes)))
