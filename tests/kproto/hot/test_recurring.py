"""A request that differs in its records alone from an earlier one, against the parsers that read it whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError
from ottla.kproto.headers import RequestHeader, build_request_header, parse_request_header
from ottla.kproto.hot.recurring import RECURRING_FROM, RecurringProduce, recurring_of
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.schema import TaggedField
from tests.kproto.hot.test_produce import RECORDS, requests

VERSIONS = st.integers(9, 13)


def frame_of(request: ProduceRequest, version: int, correlation_id: int = 1, client_id: str | None = "c") -> bytes:
    header = build_request_header(ApiKey.PRODUCE, version, correlation_id, client_id)
    return header + codec.build(request, version)


def read(frame: bytes) -> tuple[RequestHeader, ProduceRequest] | None:
    """What the schema's codec makes of a frame."""
    try:
        header, start = parse_request_header(frame)
        request = codec.parse_request(ApiKey.PRODUCE, header.api_version, frame, start)
    except DecodeError:
        return None
    assert isinstance(request, ProduceRequest)
    return header, request


def remembered(frame: bytes) -> tuple[RecurringProduce, int] | None:
    header, start = parse_request_header(frame)
    return recurring_of(frame, header, start, codec.parse_request(ApiKey.PRODUCE, header.api_version, frame, start))


def assert_same(recurring: RecurringProduce, frame: bytes) -> bool:
    """That the frame is either left to the parser or read as that reads it; True if it was read."""
    parsed = recurring.parse(frame)
    if parsed is None:
        return False
    header, request = parsed
    assert (header, request.whole()) == read(frame)
    return True


def one(records: bytes | None, **changed: object) -> ProduceRequest:
    data = PartitionProduceData(index=3, records=records)
    request = ProduceRequest(acks=-1, timeout_ms=7, topic_data=[TopicProduceData(name="t", partition_data=[data])])
    for name, value in changed.items():
        setattr(request, name, value)
    return request


@settings(max_examples=300)
@given(st.data(), VERSIONS)
def test_other_records_are_read_as_the_codec_reads_them(data: st.DataObject, version: int) -> None:
    request = data.draw(requests(version))
    found = remembered(frame_of(request, version))
    if found is None:
        return
    recurring, end = found
    first = frame_of(request, version)
    assert assert_same(recurring, first)
    request.topic_data[0].partition_data[0].records = data.draw(RECORDS)
    next_one = frame_of(request, version, correlation_id=data.draw(st.integers(-(2**31), 2**31 - 1)))
    assert next_one[RECURRING_FROM:end] == first[RECURRING_FROM:end]
    assert assert_same(recurring, next_one)


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 16_382, 16_383, 60_000, 2**21 - 2])
def test_ordinary_requests_recur(version: int, size: int) -> None:
    request = one(bytes(size))
    if version == 13:
        request.topic_data[0].name = ""
    found = remembered(frame_of(request, version))
    assert found is not None
    assert assert_same(found[0], frame_of(request, version, correlation_id=9))


@settings(max_examples=500)
@given(st.data(), VERSIONS)
def test_damage_after_what_recurs_has_the_codecs_outcome(data: st.DataObject, version: int) -> None:
    request = one(data.draw(RECORDS))
    if version == 13:
        request.topic_data[0].name = ""
    frame = bytearray(frame_of(request, version))
    found = remembered(bytes(frame))
    assert found is not None
    recurring, end = found
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(end, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(end, len(frame)))] + data.draw(st.binary(max_size=3))
    assert_same(recurring, bytes(frame))


@pytest.mark.parametrize(
    "request_",
    [
        one(None),
        one(b"", unknown_tagged_fields=(TaggedField(1, b"x"),)),
        one(b"", topic_data=[]),
        one(b"", topic_data=[TopicProduceData(name="t")]),
        one(b"", topic_data=[TopicProduceData(name="n" * 127, partition_data=[PartitionProduceData(records=b"")])]),
        one(b"", transactional_id="n" * 127),
        one(b"", topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"")] * 2)]),
    ],
)
def test_what_is_not_ordinary_does_not_recur(request_: ProduceRequest) -> None:
    assert remembered(frame_of(request_, 9)) is None


def test_another_api_or_version_is_left_to_the_parser() -> None:
    frame = frame_of(one(b"x"), 9)
    found = remembered(frame)
    assert found is not None
    assert found[0].parse(frame_of(one(b"x"), 10)) is None
    assert found[0].parse(b"\0\1" + frame[2:]) is None
