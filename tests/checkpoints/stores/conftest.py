"""A real S3 server for the tests of a module, and a folder in its bucket for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoints.stores.buckets import Bucket
from tests.lab.fixtures import get
from tests.lab.modules import VERSITYGW
from tests.lab.s3 import S3, Faulty


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """One server for all tests of a worker."""
    get(VERSITYGW, request)
    server = S3(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def bucket(s3_server: S3, tmp_path: Path) -> Bucket:
    """The bucket, as one test uses it: below a folder of its own."""
    return Bucket(s3_server.environment, tmp_path.name)


@pytest.fixture
def faulty(s3_server: S3) -> Iterator[Faulty]:
    """The proxy before the server, which lets everything pass until a test gives it a rule."""
    with Faulty(s3_server.url).running() as proxy:
        yield proxy
