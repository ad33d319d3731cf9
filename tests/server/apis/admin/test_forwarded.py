"""Requests that Kafka's brokers forward to the controller are answered in time, whatever the metadata store does."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.kproto.error_responses import error_response
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.kproto.messages.topics.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.kproto.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.kproto.messages.topics.elect_leaders import ElectLeadersRequest
from ottla.kproto.schema import Request
from ottla.metastore.memory import MemoryMetadataStore
from ottla.runtime.work import Work
from ottla.server.apis.forwarded import answered_up_to_date
from ottla.server.apis.table import declaration, module_of, served

NEW = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
REQUESTS = (
    (AlterPartitionReassignmentsRequest(), 0),
    (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)]), 3),
    (CreateTopicsRequest(topics=[NEW]), 7),
    (DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6),
    (ElectLeadersRequest(topic_partitions=None), 2),
)

Serve = Callable[[Request, int], Any]


@pytest.fixture
def serve(broker: Any) -> Serve:
    async def serve(request: Request, version: int) -> Any:
        module = module_of(request.API_KEY)
        header = SimpleNamespace(api_version=version, client_id="test")
        context: Any = SimpleNamespace(access=None, broker=broker, header=header, principal="User:ann", work=Work())
        return await answered_up_to_date(module.handle, is_timed=module.API.timed)(request, context)

    return serve


def test_each_of_them_is_tried_here() -> None:
    assert {request.API_KEY for request, _ in REQUESTS} == {key for key in served() if declaration(key).timed}


@pytest.mark.parametrize(("request_", "version"), REQUESTS, ids=lambda it: getattr(it, "API_KEY", ""))
async def test_a_store_that_is_silent_is_waited_for_as_long_as_the_client_says(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, request_: Any, version: int
) -> None:
    async def never(store: MemoryMetadataStore, prefix: str) -> None:
        await trio.sleep(60)

    monkeypatch.setattr(MemoryMetadataStore, "list", never)
    began = trio.current_time()
    request_.timeout_ms = 7_000
    assert await serve(request_, version) == error_response(request_, version, ErrorCode.REQUEST_TIMED_OUT)
    assert trio.current_time() == began + 7


async def test_who_is_overtaken_again_and_again_gives_up_when_the_time_is_over(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async def lost(*arguments: Any) -> None:
        await trio.sleep(2)

    monkeypatch.setattr(MemoryMetadataStore, "commit", lost)
    began = trio.current_time()
    answer = await serve(CreateTopicsRequest(topics=[NEW], timeout_ms=7_000), 7)
    assert ErrorCode(answer.topics[0].error_code) is ErrorCode.REQUEST_TIMED_OUT
    assert trio.current_time() == began + 7


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_request_without_any_time_changes_nothing(serve: Serve, broker: Any, timeout_ms: int) -> None:
    answer = await serve(CreateTopicsRequest(topics=[NEW], timeout_ms=timeout_ms), 7)
    assert ErrorCode(answer.topics[0].error_code) is ErrorCode.REQUEST_TIMED_OUT
    assert broker.metadata.topic("new") is None


async def test_where_the_controller_has_no_deadline_the_time_does_not_count(serve: Serve) -> None:
    answer = await serve(UpdateFeaturesRequest(feature_updates=[], timeout_ms=0), 2)
    assert ErrorCode(answer.error_code) is not ErrorCode.REQUEST_TIMED_OUT
