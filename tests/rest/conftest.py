"""A broker with the REST proxy and the schema registry, asked over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ottla.testing.broker import Broker

V2 = "application/vnd.kafka.v2+json"
CONFIG = {
    "ottla.rest.listeners": "127.0.0.1:0",
    "ottla.registry.listeners": "127.0.0.1:0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


class Rest:
    """Asks the REST proxy of a broker."""

    def __init__(self, broker: Broker) -> None:
        assert broker._thread is not None
        self.url = broker._thread.ready.rest_url or ""
        self.consumers: list[str] = []
        self.client = httpx.Client(base_url=self.url, trust_env=False, timeout=300)

    def get(self, path: str, **options: Any) -> tuple[int, Any]:
        return self.answer(self.client.get(path, **options))

    def produce(self, path: str, form: str, body: object, **options: Any) -> tuple[int, Any]:
        """Produce by version 2; `form` is the format of keys and values."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": f"application/vnd.kafka.{form}.v2+json", "accept": V2}
        return self.answer(self.client.post(path, content=data, headers=headers, **options))

    def stream(self, cluster: str, topic: str, *records: object) -> tuple[int, list[Any]]:
        """Produce by version 3; the reports."""
        data = b"".join(it if isinstance(it, bytes) else json.dumps(it).encode() for it in records)
        headers = {"content-type": "application/json"}
        answer = self.client.post(f"/v3/clusters/{cluster}/topics/{topic}/records", content=data, headers=headers)
        return answer.status_code, [json.loads(line) for line in answer.text.splitlines()]

    @staticmethod
    def answer(response: httpx.Response) -> tuple[int, Any]:
        return response.status_code, response.json()


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Broker:
    shared_broker.reset()
    return shared_broker


@pytest.fixture
def rest(broker: Broker) -> Iterator[Rest]:
    rest = Rest(broker)
    with rest.client:
        yield rest
        for uri in rest.consumers:  # or they would be members of the next test's groups
            rest.client.delete(uri)
