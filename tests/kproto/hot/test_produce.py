"""The hot Produce parser against the schema's codec: the same messages, the same errors, for every version."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError, EncodeError
from ottla.kproto.hot import produce
from ottla.kproto.messages.data.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.kproto.schema import Request, TaggedField

VERSIONS = st.integers(3, 13)
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
RECORDS = st.binary(max_size=300) | st.sampled_from([bytes(size) for size in (126, 127, 16_382, 16_383, 16_384)])
TAGS = st.lists(st.binary(max_size=5), max_size=2).map(
    lambda contents: tuple(TaggedField(tag, data) for tag, data in enumerate(contents))
)


@st.composite
def requests(draw: st.DrawFn, version: int) -> ProduceRequest:
    """Mostly what producers send; sometimes nulls, tags and long names, which the hot parser leaves to the codec."""
    tags = (TAGS if draw(st.integers(0, 4)) == 0 else st.just(())) if version >= 9 else st.just(())
    records = RECORDS | st.none() if draw(st.integers(0, 4)) == 0 else RECORDS
    partitions = st.builds(PartitionProduceData, index=INT32, records=records, unknown_tagged_fields=tags)
    names = st.text(max_size=20) | st.sampled_from(["n" * 126, "n" * 127, "é" * 63, "n" * 249])
    topics = st.builds(
        TopicProduceData,
        name=names if version < 13 else st.just(""),
        topic_id=st.uuids() | st.just(uuid.UUID(int=0)) if version >= 13 else st.just(uuid.UUID(int=0)),
        partition_data=st.lists(partitions, max_size=4),
        unknown_tagged_fields=tags,
    )
    return draw(
        st.builds(
            ProduceRequest,
            transactional_id=st.none() | names,
            acks=st.integers(-1, 1),
            timeout_ms=INT32,
            topic_data=st.lists(topics, max_size=3),
            unknown_tagged_fields=tags,
        )
    )


def outcome(version: int, frame: bytes) -> tuple[Request | None, Request | None]:
    """What hot parser and codec make of a frame; None for a DecodeError."""
    results: list[Request | None] = []
    for parse in (produce.parse_request, lambda v, buf: codec.parse_request(ApiKey.PRODUCE, v, buf)):
        try:
            results.append(parse(version, frame))
        except DecodeError:
            results.append(None)
    return results[0], results[1]


@settings(max_examples=300)
@given(st.data(), VERSIONS)
def test_equal_to_the_codec(data: st.DataObject, version: int) -> None:
    request = data.draw(requests(version))
    frame = bytearray(b"header" + codec.build(request, version))
    assert produce.parse_request(version, frame, 6) == request


@settings(max_examples=300)
@given(st.data(), VERSIONS)
def test_a_request_of_one_partition_is_known_before_it_is_parsed(data: st.DataObject, version: int) -> None:
    request = data.draw(requests(version))
    frame = b"header" + codec.build(request, version)
    is_lone = [len(topic.partition_data) for topic in request.topic_data] == [1]
    found = produce.parse_lone_request(version, frame, 6)
    if found is not None:
        assert is_lone
        assert found == request
    elif is_lone:
        assert produce._parse_ordinary(version, memoryview(frame), 6) is None
    cut = frame[: data.draw(st.integers(6, len(frame) - 1))]
    assert produce.parse_lone_request(version, cut, 6) is None


@settings(max_examples=500)
@given(st.data(), VERSIONS)
def test_damaged_frames_have_the_codecs_outcome(data: st.DataObject, version: int) -> None:
    frame = bytearray(codec.build(data.draw(requests(version)), version))[:2_000]
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, min(len(frame) - 1, 80)))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))] + data.draw(st.binary(max_size=3))
    hot, by_schema = outcome(version, bytes(frame))
    assert hot == by_schema


@given(st.binary(max_size=60), st.integers(-1, 15))
def test_arbitrary_bytes_have_the_codecs_outcome(frame: bytes, version: int) -> None:
    hot, by_schema = outcome(version, frame)
    assert hot == by_schema


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 16_382, 16_383, 100_000, 2**21 - 2])
def test_ordinary_requests_take_the_hot_path(version: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = TopicProduceData(
        name="t" if version < 13 else "",
        topic_id=uuid.UUID(int=7 if version >= 13 else 0),
        partition_data=[PartitionProduceData(index=number, records=bytes(size)) for number in range(2)],
    )
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic], transactional_id="tx")
    frame = codec.build(request, version)

    def unexpected(*_: object) -> None:
        pytest.fail("the codec was asked")

    monkeypatch.setattr(codec, "parse", unexpected)
    assert produce.parse_request(version, frame) == request


@pytest.mark.parametrize("version", [8, 9, 13])
@pytest.mark.parametrize(("topics", "partitions", "size"), [(130, 1, 1), (1, 130, 1), (1, 1, 2**21)])
def test_large_requests_are_equal_too(version: int, topics: int, partitions: int, size: int) -> None:
    topic = TopicProduceData(partition_data=[PartitionProduceData(index=0, records=bytes(size))] * partitions)
    request = ProduceRequest(topic_data=[topic] * topics)
    assert produce.parse_request(version, codec.build(request, version)) == request


@pytest.mark.parametrize("version", [3, 9, 13])
def test_records_are_views_of_the_frame(version: int) -> None:
    partition = PartitionProduceData(index=0, records=b"abc")
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[partition])])
    frame = bytearray(codec.build(request, version))
    records = produce.parse_request(version, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame
    assert not records.readonly


def lone_response(name: str, topic_id: uuid.UUID, answer: produce.ProducedPartition) -> ProduceResponse:
    return ProduceResponse(responses=[produce.produced_topic(name, topic_id, [answer])])


@settings(max_examples=300)
@given(st.data(), VERSIONS)
def test_answers_are_those_of_the_codec(data: st.DataObject, version: int) -> None:
    """The light answer of one partition, and what only looks like it."""
    draw = data.draw
    answer = produce.ProducedPartition(draw(INT32))
    answer.base_offset, answer.log_append_time_ms, answer.log_start_offset = draw(st.tuples(INT64, INT64, INT64))
    is_tagged = version >= 9 and draw(st.integers(0, 4)) == 0
    tags = st.sampled_from([(), (TaggedField(7, b"tag"),)]) if is_tagged else st.just(())
    answer.unknown_tagged_fields = draw(tags)
    if draw(st.integers(0, 3)) == 0:
        answer.error_code = draw(st.integers(1, 100))
        answer.error_message = draw(st.none() | st.text(max_size=5))
        if version >= 10:
            answer.current_leader = LeaderIdAndEpoch(leader_id=draw(st.integers(-1, 5)), leader_epoch=3)
    name = draw(st.text(max_size=20) | st.sampled_from(["n" * 126, "n" * 127, "é" * 63, "n" * 249]))
    response = lone_response(name, draw(st.uuids()), answer)
    response.responses[0].unknown_tagged_fields = draw(tags)
    response.unknown_tagged_fields = draw(tags)
    response.throttle_time_ms = draw(st.integers(0, 2**31 - 1))
    if version >= 10 and draw(st.integers(0, 4)) == 0:
        response.node_endpoints = [NodeEndpoint(node_id=1, host="h", port=9092)]
    if draw(st.integers(0, 4)) == 0:
        response.responses = response.responses * draw(st.integers(0, 2))
    assert b"".join(produce.build_parts(response, version)) == codec.build(response, version)


def test_answers_that_do_not_fit_are_the_codecs_errors() -> None:
    response = lone_response("t", uuid.UUID(int=1), produce.ProducedPartition(2**31))
    with pytest.raises(EncodeError):
        produce.build_parts(response, 9)
    with pytest.raises(EncodeError):
        produce.build_parts(lone_response("\ud800", uuid.UUID(int=1), produce.ProducedPartition(1)), 9)
