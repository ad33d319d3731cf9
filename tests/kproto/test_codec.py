"""The compiled codec says exactly what the interpreted reference says: every message, every version, both ways."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto import codec, reference
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError, EncodeError
from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.elect_leaders import ElectLeadersRequest
from ottla.kproto.messages.topics.elect_leaders import TopicPartitions as ElectTopicPartitions
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.schema import Message, TaggedField
from tests.kproto.random_messages import random_message

EXAMPLES_PER_VERSION = 10


def _versions(cls: type[Message]) -> range:
    return range(cls.VERSIONS.lowest, cls.VERSIONS.highest + 1)


def test_compiled_equals_reference(message_class: type[Message], example_factor: int) -> None:
    for version in _versions(message_class):
        for number in range(EXAMPLES_PER_VERSION * example_factor):
            _check_agreement(version, random_message(message_class, version, number))


def _check_agreement(version: int, message: Message) -> None:
    cls = type(message)
    encoded = codec.build(message, version)
    assert encoded == reference.build(message, version)
    assert codec.parse(cls, version, encoded) == message
    assert reference.parse(cls, version, encoded) == message
    assert in_one_go(codec.parse_prefix_in_steps(cls, version, encoded)) == (message, len(encoded))
    assert b"".join(in_one_go(codec.build_in_steps(message, version))) == encoded


def in_one_go(steps: codec.Steps[Any]) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class TestInSteps:
    """Messages of many elements: stops on the way, and the same at the end."""

    @pytest.mark.parametrize("version", [2, 6])
    def test_it_stops_behind_every_128_elements_however_they_are_nested(self, version: int) -> None:
        topics = [
            ListOffsetsTopic(name=str(n), partitions=[ListOffsetsPartition(partition_index=i) for i in range(20)])
            for n in range(100)
        ]
        request = ListOffsetsRequest(topics=topics)
        raw = codec.build(request, version)
        assert sum(1 for _ in codec.parse_request_in_steps(ApiKey.LIST_OFFSETS, version, raw)) == 2_100 // 128
        assert sum(1 for _ in codec.build_in_steps(request, version)) == 2_100 // 128
        assert in_one_go(codec.parse_request_in_steps(ApiKey.LIST_OFFSETS, version, raw)) == request
        assert b"".join(in_one_go(codec.build_in_steps(request, version))) == raw

    def test_numbers_ids_and_unknown_tags_are_elements_too(self) -> None:
        tags = tuple(TaggedField(1000 + n, b"") for n in range(500))
        topics = [ElectTopicPartitions(topic="t", partitions=list(range(1000)))]
        elections = ElectLeadersRequest(topic_partitions=topics, unknown_tagged_fields=tags)
        raw = codec.build(elections, 2)
        stops = sum(1 for _ in codec.parse_request_in_steps(ApiKey.ELECT_LEADERS, 2, raw))
        assert stops == 1_000 // 128 + 500 // 128
        assert in_one_go(codec.parse_request_in_steps(ApiKey.ELECT_LEADERS, 2, raw)) == elections
        assert b"".join(in_one_go(codec.build_in_steps(elections, 2))) == raw

    def test_what_is_malformed_or_does_not_fit_is_said_as_by_the_others(self) -> None:
        raw = codec.build(ListOffsetsRequest(topics=[ListOffsetsTopic(name="t")] * 200), 6)
        with pytest.raises(DecodeError):
            in_one_go(codec.parse_request_in_steps(ApiKey.LIST_OFFSETS, 6, raw[:-5]))
        with pytest.raises(EncodeError):
            in_one_go(codec.build_in_steps(ListOffsetsRequest(topics=[ListOffsetsTopic(name=None)]), 6))  # type: ignore[arg-type]


def test_defaults_survive_every_version(message_class: type[Message]) -> None:
    for version in _versions(message_class):
        encoded = codec.build(message_class(), version)
        assert codec.parse(message_class, version, encoded) == message_class()


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda raw: memoryview(b"##" + raw)[2:]])
def test_any_buffer_parses(wrap: Any) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1500,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=b"batch")])],
    )
    raw = codec.build(request, 9)
    assert codec.parse_request(ApiKey.PRODUCE, 9, wrap(raw)) == request


def test_bytes_behind_a_request_are_ignored_as_kafka_does() -> None:
    """librdkafka 2.16 asks for all topics with three bytes too many."""
    asked = bytes.fromhex("00 00 00 00 01 00 00")
    assert codec.parse_request(ApiKey.METADATA, 13, asked) == MetadataRequest(
        topics=None, allow_auto_topic_creation=False
    )
    with pytest.raises(DecodeError, match="3 bytes before"):
        codec.parse(MetadataRequest, 13, asked)


def test_records_are_views_of_the_input() -> None:
    message = FetchResponse(
        responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=b"0123456789")])]
    )
    buffer = bytearray(codec.build(message, 11))
    parsed = codec.parse_response(ApiKey.FETCH, 11, buffer)
    assert isinstance(parsed, FetchResponse)
    records = parsed.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    buffer[buffer.index(b"0123456789")] = ord("X")
    assert bytes(records) == b"X123456789"


def test_build_parts_hands_record_batches_over_uncopied() -> None:
    batch = memoryview(b"0123456789")
    message = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=batch)])])
    parts = codec.build_parts(message, 12)
    assert any(part is batch for part in parts)
    assert b"".join(parts) == codec.build(message, 12)


def test_bytes_left_over_are_an_error() -> None:
    raw = codec.build(MetadataRequest(topics=None), 9)
    with pytest.raises(DecodeError, match="ends 1 bytes before"):
        codec.parse(MetadataRequest, 9, raw + b"\x00")


def test_body_may_start_behind_a_header() -> None:
    raw = codec.build(MetadataRequest(topics=None), 9)
    assert codec.parse(MetadataRequest, 9, b"header" + raw, 6) == MetadataRequest(topics=None)


def test_field_missing_in_the_version_must_be_at_its_default() -> None:
    with pytest.raises(EncodeError, match=r"transactional_id|producer_id"):
        codec.build(InitProducerIdRequest(producer_id=7), 2)
    with pytest.raises(EncodeError):
        reference.build(InitProducerIdRequest(producer_id=7), 2)


def test_ignorable_field_is_dropped_silently() -> None:
    message = FetchResponse(throttle_time_ms=0, session_id=0, error_code=3)
    assert codec.parse(FetchResponse, 4, codec.build(message, 4)) == FetchResponse()


@pytest.mark.parametrize(
    "message",
    [
        CreateTopicsRequest(topics=[CreatableTopic(name=None)]),  # type: ignore[arg-type]
        CreateTopicsRequest(topics=[CreatableTopic(num_partitions=1 << 31)]),
        CreateTopicsRequest(topics=[CreatableTopic(name="\ud800")]),
        CreateTopicsRequest(topics=[CreatableTopic(name="x" * 32768)]),
        CreateTopicsRequest(topics=None),  # type: ignore[arg-type]
        CreateTopicsRequest(topics=[object()]),  # type: ignore[list-item]
        CreateTopicsRequest(timeout_ms="soon"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("version", [2, 7])
def test_unfit_values_are_encode_errors(message: Message, version: int) -> None:
    with pytest.raises(EncodeError):
        codec.build(message, version)


def test_unknown_tagged_fields_need_a_flexible_version() -> None:
    message = MetadataRequest(unknown_tagged_fields=(TaggedField(9, b"x"),))
    assert codec.parse(MetadataRequest, 9, codec.build(message, 9)) == message
    with pytest.raises(EncodeError, match="tagged fields"):
        codec.build(message, 8)


@pytest.mark.parametrize("tags", [((9, b""), (9, b"")), ((0, b"known"),), ((-1, b""),)])
def test_bad_unknown_tags_are_encode_errors(tags: tuple[tuple[int, bytes], ...]) -> None:
    fields = tuple(TaggedField(*tag) for tag in tags)
    with pytest.raises(EncodeError):
        codec.build(FetchResponse(unknown_tagged_fields=fields), 16)


@pytest.mark.parametrize(("key", "version"), [(4, 0), (999, 0), (-1, 0), (1, 3), (1, 19), (22, 6)])
def test_unserved_keys_and_versions_are_decode_errors(key: int, version: int) -> None:
    with pytest.raises(DecodeError):
        codec.parse_request(key, version, b"")
    with pytest.raises(DecodeError):
        codec.parse_response(key, version, b"")


def test_versions_outside_the_declared_range() -> None:
    for version in (-1, 14):
        with pytest.raises(DecodeError, match="no version"):
            codec.parse(MetadataRequest, version, b"")
        with pytest.raises(EncodeError, match="no version"):
            codec.build(MetadataRequest(), version)
        with pytest.raises(DecodeError, match="no version"):
            reference.parse(MetadataRequest, version, b"")
        with pytest.raises(EncodeError, match="no version"):
            reference.build(MetadataRequest(), version)


def test_messages_compare_by_value_and_show_their_fields() -> None:
    message = CreatableTopic(name="t")
    assert message == CreatableTopic(name="t")
    assert message != CreatableTopic(name="u")
    assert message != CreatableTopic(name="t", unknown_tagged_fields=(TaggedField(1, b""),))
    assert message != "t"
    assert repr(message).startswith("CreatableTopic(name='t', num_partitions=0,")
    assert "unknown_tagged_fields=(TaggedField(tag=1, data=b'x'),)" in repr(
        MetadataRequest(unknown_tagged_fields=(TaggedField(1, b"x"),))
    )
    with pytest.raises(TypeError, match="unhashable"):
        hash(message)


def test_every_instance_has_its_own_default_lists_and_structs() -> None:
    first, second = FetchResponse(), FetchResponse()
    first.responses.append(FetchableTopicResponse())
    assert second.responses == []
    assert PartitionData().diverging_epoch is not PartitionData().diverging_epoch


@given(st.integers(1, 2**31 - 1))
def test_array_count_is_checked_before_anything_is_made(count: int) -> None:
    with pytest.raises(DecodeError, match="longer than the bytes"):
        codec.parse(MetadataRequest, 1, count.to_bytes(4, "big"))


class TestMostElements:
    """What Apache Kafka 4.4 reads at most; for more it closes the connection."""

    def test_an_array(self) -> None:
        request = ElectLeadersRequest(topic_partitions=[ElectTopicPartitions(topic="t", partitions=[7] * 1_000_000)])
        most = codec.build(request, 0)
        assert codec.parse(ElectLeadersRequest, 0, most) == request
        count = (1_000_000).to_bytes(4, "big")
        assert most.count(count) == 1
        beyond = most.replace(count, (1_000_001).to_bytes(4, "big")) + bytes(4)
        with pytest.raises(DecodeError, match="1000001 elements"):
            codec.parse(ElectLeadersRequest, 0, beyond)
        with pytest.raises(DecodeError, match="1000001 elements"):
            in_one_go(codec.parse_prefix_in_steps(ElectLeadersRequest, 0, beyond))
        with pytest.raises(DecodeError, match="1000001 elements"):
            reference.parse(ElectLeadersRequest, 0, beyond)

    @pytest.mark.parametrize("message", [ElectLeadersRequest(), InitProducerIdRequest(), FetchResponse()])
    def test_tagged_fields(self, message: Message) -> None:
        version = type(message).VERSIONS.highest
        message.unknown_tagged_fields = tuple(TaggedField(1000 + tag, b"") for tag in range(10_000))
        most = codec.build(message, version)
        assert codec.parse(type(message), version, most) == message
        message.unknown_tagged_fields += (TaggedField(20_000, b""),)
        beyond = codec.build(message, version)
        with pytest.raises(DecodeError, match="10001"):
            codec.parse(type(message), version, beyond)
        with pytest.raises(DecodeError, match="10001"):
            in_one_go(codec.parse_prefix_in_steps(type(message), version, beyond))
        with pytest.raises(DecodeError, match="10001"):
            reference.parse(type(message), version, beyond)
