"""Limits that Apache Kafka 4.4 has set: elements of arrays, tagged fields, bytes that inflate (`--broker=both`)."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.test_wire_produce_fetch import Topic, make_topic, records, topic, wire
from compat_tests.wire.wire import Wire, WireConnection
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.data.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.kproto.records import Compression

__all__ = ["make_topic", "topic", "wire"]

MOST_ELEMENTS, MOST_TAGGED_FIELDS = 1_000_000, 10_000


@pytest.fixture
def raw(broker: BrokerProcess) -> WireConnection:
    host, _, port = broker.bootstrap.split(",")[0].partition(":")
    return WireConnection((host, int(port)))


def varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low]) if not high else bytes([low | 0x80]) + varint(high)


def send(connection: WireConnection, key: ApiKey, version: int, tagged_fields: bytes, body: bytes) -> None:
    """A request with a flexible header."""
    frame = struct.pack(">hhih", key, version, 1, -1) + tagged_fields + body
    connection._socket.sendall(struct.pack(">i", len(frame)) + frame)


API_VERSIONS = (ApiKey.API_VERSIONS, 3)
METADATA = (ApiKey.METADATA, 9)
NO_FIELDS = b"\0"
BY_NOBODY = b"\2a\0021"  # the software's name and version


def tagged(count: int) -> bytes:
    """So many tagged fields that nobody knows, of no bytes."""
    return varint(count) + b"".join(varint(100 + number) + b"\0" for number in range(count))


def test_so_many_tagged_fields(raw: WireConnection) -> None:
    send(raw, *API_VERSIONS, tagged(MOST_TAGGED_FIELDS), BY_NOBODY + NO_FIELDS)
    assert raw._read(4), "an answer"


@pytest.mark.parametrize("is_header", [True, False])
def test_more_tagged_fields(raw: WireConnection, is_header: bool) -> None:
    many = tagged(MOST_TAGGED_FIELDS + 1)
    header, body = (many, NO_FIELDS) if is_header else (NO_FIELDS, many)
    send(raw, *METADATA, header, b"\1\0\0\0" + body)
    assert raw.is_closed_by_broker()


def test_more_elements(raw: WireConnection) -> None:
    names = varint(MOST_ELEMENTS + 2) + b"\2t\0" * (MOST_ELEMENTS + 1)
    send(raw, *METADATA, NO_FIELDS, names + b"\0\0\0" + NO_FIELDS)
    assert raw.is_closed_by_broker()


def test_records_that_inflate_too_much(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(max_decompressed_message_bytes="1000", compression_type="gzip")
    for compression in (Compression.GZIP, Compression.LZ4):
        small = records(3, bytes(100), compression=compression)
        assert topic.produce(small).error_code == ErrorCode.NONE
        large = records(1, bytes(2000), compression=compression)
        assert ErrorCode(topic.produce(large).error_code).name == "INVALID_RECORD"
    assert topic.produce(records(1, bytes(2000))).error_code == ErrorCode.NONE  # it inflates to nothing more


def test_a_topic_of_producers_that_is_named_twice(wire: Wire, topic: Topic) -> None:
    asked = [TopicRequest(name=topic.name, partition_indexes=[index]) for index in (0, 1)]
    answered = wire.call(DescribeProducersRequest(topics=asked), 0).topics
    assert [(each.name, [it.partition_index for it in each.partitions]) for each in answered] == [
        (topic.name, [0]),
        (topic.name, [1]),
    ]


def test_versions_are_agreed_on_though_the_software_has_no_name(wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="", client_software_version="1")
    assert ErrorCode(wire.call(request, 5).error_code).name == "INVALID_REQUEST"
