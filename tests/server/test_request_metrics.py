"""What is counted of requests: errors wherever a response has them, and the parts of their time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages import response_class
from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.kproto.messages.data.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.kproto.messages.groups.join_group import JoinGroupResponse
from ottla.kproto.messages.groups.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from ottla.kproto.messages.topics.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.kproto.messages.topics.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.kproto.schema import Response
from ottla.server.apis.measurement import RequestMeasurement
from ottla.server.apis.table import declaration, served
from ottla.server.request_metrics import RequestMetrics
from ottla.storage.histogram import BOUNDS_SECONDS, Histogram


def produced(*codes: int) -> ProduceResponse:
    answers = [PartitionProduceResponse(index=n, error_code=code) for n, code in enumerate(codes)]
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=answers)])


def fetched(*codes: int) -> FetchResponse:
    answers = [PartitionData(partition_index=n, error_code=code) for n, code in enumerate(codes)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=answers)])


@pytest.mark.parametrize(
    ("response", "errors"),
    [
        (produced(0, 3, 0, 3), {3: 2}),
        (fetched(0, 1), {1: 1}),
        (FetchResponse(error_code=70), {70: 1}),
        (JoinGroupResponse(error_code=79), {79: 1}),
        (JoinGroupResponse(), {}),
        (CreateTopicsResponse(topics=[CreatableTopicResult(name=n, error_code=36) for n in "ab"]), {36: 2}),
        (
            MetadataResponse(
                topics=[
                    MetadataResponseTopic(error_code=3, name="a"),
                    MetadataResponseTopic(name="b", partitions=[MetadataResponsePartition(error_code=5)]),
                ]
            ),
            {3: 1},
        ),
        (OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", error_code=16)]), {16: 1}),
    ],
)
def test_errors_are_found_where_they_stand(response: Response, errors: dict[int, int]) -> None:
    metrics = RequestMetrics(declaration(response.API_KEY).error_counter())
    metrics.count_errors(response)
    assert metrics.errors == errors


@pytest.mark.parametrize("key", served())
def test_every_api_can_be_asked_and_a_success_has_none(key: ApiKey) -> None:
    response = response_class(key)()
    metrics = RequestMetrics(declaration(key).error_counter())
    metrics.count_errors(response)
    assert metrics.errors == {}
    if hasattr(response, "error_code"):
        response.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        if key is not ApiKey.METADATA:
            metrics.count_errors(response)
            assert metrics.errors == {-1: 1}


def test_the_parts_of_the_time_add_up() -> None:
    metrics = RequestMetrics(declaration(ApiKey.FETCH).error_counter())
    metrics.record(queue=0.001, local=0.002, remote=0.5, send=0.004)
    metrics.record(queue=0.0, local=0.0, remote=0.0, send=0.0)
    parts = [metrics.queue, metrics.local, metrics.remote, metrics.send]
    assert metrics.requests == 2
    assert metrics.total.sum_seconds == pytest.approx(sum(part.sum_seconds for part in parts))
    assert [part.count for part in parts] == [2, 2, 2, 2]


@given(st.lists(st.floats(0, 20) | st.sampled_from(BOUNDS_SECONDS), min_size=1, max_size=200))
def test_many_durations_are_counted_as_each_one_is(durations: list[float]) -> None:
    together, one_by_one = Histogram(), Histogram()
    together.observe_all(durations)
    for seconds in durations:
        one_by_one.observe(seconds)
    assert together.counts == one_by_one.counts
    assert together.sum_seconds == pytest.approx(one_by_one.sum_seconds)


def test_what_is_recorded_is_seen_at_once_however_much_it_is() -> None:
    metrics = RequestMetrics(declaration(ApiKey.FETCH).error_counter())
    for number in range(1, 200):
        metrics.record(0.001, 0.002, 0.003, 0.004, request_bytes=10, response_bytes=100)
        if number % 3 == 0:
            assert (metrics.request_bytes, metrics.response_bytes) == (10 * number, 100 * number)
            assert metrics.requests == number


def test_no_part_of_the_time_is_negative() -> None:
    metrics = RequestMetrics(declaration(ApiKey.HEARTBEAT).error_counter())
    measurement = RequestMeasurement(request_bytes=0)
    # Something else has noted its wait in this request's time.
    measurement.waited_meanwhile(100.0)
    measurement.answered(0)
    measurement.record(metrics)
    assert metrics.local.sum_seconds == 0.0
    assert 0.0 <= metrics.remote.sum_seconds < 10.0
