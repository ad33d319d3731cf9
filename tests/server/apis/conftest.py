"""Handlers called with messages as they come off the wire, over a replica manager that answers what the test says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.hot import fetch as hot_fetch
from ottla.kproto.schema import Request
from ottla.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionState, TopicImage
from ottla.replica.fetch_session import FetchSessionCache
from ottla.replica.unopened import Unopened
from ottla.runtime.work import Work
from ottla.server.apis.table import module_of
from ottla.server.quotas.clients import ClientQuotas
from ottla.settings.config import BrokerConfig
from ottla.storage.clock import ManualClock
from tests.servers import answered


class StubReplicaManager:
    """Answers every partition alike, and remembers what it was asked."""

    def __init__(self) -> None:
        self.append_result: Any = None
        self.fetch_result: Callable[[], Any] = lambda: None
        self.partition: Any = None
        self.fetch_sessions = FetchSessionCache(10, ManualClock())
        self.appended: list[dict[str, Any]] = []
        self.fetched: list[tuple[Any, Any]] = []
        self.unopened = Unopened()

    def begin_append(self, entries: Any, **options: Any) -> Any:
        self.appended.append({"entries": dict(entries), **options})
        return SimpleNamespace(
            is_complete=True, try_complete=lambda: True, results=[self.append_result for _ in entries]
        )
        yield

    def begin_fetch(self, params: Any, partitions: Any, **options: Any) -> Any:
        self.fetched.append((params, list(partitions)))
        return [self.fetch_result() for _ in partitions]
        yield

    def get_partition(self, topic_id: UUID, partition: int) -> Any:
        if isinstance(self.partition, Exception):
            raise self.partition
        return self.partition


class StubContext:
    """A `RequestContext` that counts."""

    def __init__(self, broker: Any, version: int, client_id: str) -> None:
        self.broker = broker
        self.listener = "PLAINTEXT"
        self.header = SimpleNamespace(api_version=version, client_id=client_id)
        self.fragment = None
        self.connection = SimpleNamespace(was_held_up=False, held_up=lambda: None, is_awaited=True, sends_files=False)
        self.held: list[Any] = []
        self.when_kept: Callable[[], None] = lambda: None
        self.work = Work()
        self.counted = None
        self.access = None

    def leave_queue(self) -> None:
        pass

    def call_when_kept(self, callback: Callable[[], None]) -> None:
        self.when_kept = callback

    def release_after_send(self, held: Any) -> None:
        self.held.append(held)


class Cluster:
    """Node 0, its neighbour 1 which leads `topic`, and the handlers of node 0."""

    def __init__(self) -> None:
        self.topic = TopicImage(
            "topic", uuid4(), (PartitionState(leader=1, replicas=(0, 1), isr=(0, 1), leader_epoch=7),)
        )
        image = MetadataImage()
        self.broker = SimpleNamespace(
            node_id=0,
            config=BrokerConfig({}),
            quotas=ClientQuotas(),
            schema_validation=SimpleNamespace(rules={}),
            replica_manager=StubReplicaManager(),
            metadata=MetadataImage(
                topics=image.topics.set("topic", self.topic),
                topics_by_id=image.topics_by_id.set(self.topic.topic_id, self.topic),
                brokers={1: BrokerImage(1, (Endpoint("PLAINTEXT", "neighbour", 9093),), rack="r1")},
            ),
        )
        self.manager: StubReplicaManager = self.broker.replica_manager
        self.context: StubContext | None = None

    async def call(self, request: Request, version: int, *, client_id: str = "test") -> Any:
        key = request.API_KEY
        module = module_of(key)
        received = codec.parse_request(key, version, codec.build(request, version))
        self.context = StubContext(self.broker, version, client_id)
        response = await answered(module.handle(received, self.context))
        self.context.when_kept()
        if response is None:
            return None
        if key is ApiKey.FETCH:
            return codec.parse_response(
                key, version, b"".join(cast("list[bytes]", hot_fetch.build_parts(response, version)))
            )
        return codec.parse_response(key, version, codec.build(response, version))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def call(cluster: Cluster) -> Callable[..., Awaitable[Any]]:
    return cluster.call
