"""A server with the interface of S3, and a proxy before it that fails as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from tests.tiers.http_faults import FaultyProxy, faulty_proxy
from tests.tiers.s3 import BUCKET, s3_server

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def s3_proxy() -> Iterator[FaultyProxy]:
    """The way to the server that brokers find in their environment, as long as tests of this folder run."""
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    with s3_server() as endpoint, faulty_proxy(endpoint) as (proxy, address), pytest.MonkeyPatch.context() as patch:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": address}.items():
            patch.setenv(name, value)
        yield proxy


@pytest.fixture
def proxy(s3_proxy: FaultyProxy) -> Iterator[FaultyProxy]:
    """For a test that has requests fail."""
    yield s3_proxy
    s3_proxy.let_all_pass()


@pytest.fixture(scope="module")
def new_url(s3_proxy: FaultyProxy, request: pytest.FixtureRequest) -> Callable[[], str]:
    """Addresses for `ottla.remote.url`, where nothing is yet."""
    if request.config.getoption("--broker") != "ottla":
        pytest.skip("it starts brokers of its own")
    return lambda: f"s3://{BUCKET}/{uuid4()}"
