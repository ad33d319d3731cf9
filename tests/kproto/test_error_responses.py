"""Responses that say nothing but an error, as Kafka's `getErrorResponse` fills them."""

from __future__ import annotations

from ottla.kproto.error_responses import error_response
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data import list_offsets
from ottla.kproto.messages.topics import create_topics
from ottla.kproto.schema import Request


def fail(request: Request, version: int) -> object:
    return error_response(request, version, ErrorCode.REQUEST_TIMED_OUT)


def test_what_is_unknown_is_not_taken_from_the_request() -> None:
    topic = create_topics.CreatableTopic(name="t", num_partitions=3, replication_factor=2)
    assert fail(create_topics.CreateTopicsRequest(topics=[topic]), 7) == create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name="t", error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=None)
        ]
    )


def test_a_timestamp_that_was_asked_for_is_not_one_that_was_found() -> None:
    asked = list_offsets.ListOffsetsPartition(partition_index=4, timestamp=1_700_000_000_000)
    request = list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(name="t", partitions=[asked])])
    failed = list_offsets.ListOffsetsPartitionResponse(partition_index=4, error_code=ErrorCode.REQUEST_TIMED_OUT)
    answer = list_offsets.ListOffsetsTopicResponse(name="t", partitions=[failed])
    assert fail(request, 10) == list_offsets.ListOffsetsResponse(topics=[answer])
    assert failed.timestamp == -1
