"""Bytes that no client library sends, and some old or careless client does: as Apache Kafka reads them.

What is expected here is what Apache Kafka 4.3 answers (`--broker=both`).
"""

from __future__ import annotations

import gzip
import random
import socket
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.test_wire_produce_fetch import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    Topic,
    make_topic,
    records,
    topic,
    wire,
)
from compat_tests.wire.wire import Wire
from ottla.kproto.errors import ErrorCode
from ottla.kproto.frames import build_request_frame, parse_response_frame
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Compression, Record, build_batch
from ottla.kproto.records.crc import value as crc32c
from ottla.kproto.schema import Request

__all__ = ["make_topic", "topic", "wire"]

PLACE = "%" * 9
"""Stands for bytes that no string has."""
ODD = {
    b"a\xffb": "a\ufffdb",
    b"\xc3\x28": "\ufffd(",
    b"\xc0\x80": "\ufffd\ufffd",
    b"\xe1\x80A": "\ufffdA",
    b"\xe1\x80": "\ufffd",
    b"\xe0\x80\x80": "\ufffd\ufffd\ufffd",
    b"\xed\xa0\x80": "\ufffd",
    b"\xed\xa0\x80\xed\xb0\x80": "\ufffd\ufffd",
    b"\xf0\x9f\x98": "\ufffd",
    b"\xf0\x9f\x98x": "\ufffdx",
    b"\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd",
    b"\xf8\x88\x80\x80\x80": "\ufffd" * 5,
}


def call(broker: BrokerProcess, request: Request, version: int, odd: bytes, client_id: str = "wire") -> Any:
    """Send a request in which PLACE stands for other bytes, as many of them."""
    host, _, port = broker.bootstrap.rpartition(":")
    frame = build_request_frame(request, version, 1, client_id)
    filled = b"x" * (len(PLACE) - len(odd)) + odd
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(frame.replace(PLACE.encode(), filled))
        stream = connection.makefile("rb")
        size = stream.read(4)
        assert size, "the broker has closed the connection"
        return parse_response_frame(request.API_KEY, version, stream.read(int.from_bytes(size, "big")))[1]


def read_as(odd: bytes) -> str:
    return "x" * (len(PLACE) - len(odd)) + ODD[odd]


# Strings that are not UTF-8 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 3])
def test_a_client_id_that_is_not_utf8(broker: BrokerProcess, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    assert call(broker, request, version, b"a\xffb", PLACE).error_code == ErrorCode.NONE


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("version", [4, 6])
def test_a_group_that_is_not_utf8_is_that_of_its_replaced_name(broker: BrokerProcess, odd: bytes, version: int) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[PLACE])
    (found,) = call(broker, request, version, odd).coordinators
    assert found.key == read_as(odd)


@pytest.mark.parametrize("version", [1, 12])
def test_a_topic_that_is_not_utf8_is_an_invalid_one(broker: BrokerProcess, version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=PLACE)])
    (found,) = call(broker, request, version, b"a\xffb").topics
    assert (found.error_code, found.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, read_as(b"a\xffb"))


def test_offsets_of_a_group_that_is_not_utf8(broker: BrokerProcess, wire: Wire, topic: Topic) -> None:
    group = read_as(b"a\xffb")
    commit = OffsetCommitRequest(
        group_id=PLACE,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
        ],
    )
    deadline = time.monotonic() + 20
    while True:
        code = call(broker, commit, 8, b"a\xffb").topics[0].partitions[0].error_code
        if code not in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            break
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert code == ErrorCode.NONE
    asked = OffsetFetchRequestTopics(name=topic.name, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])])
    (found,) = wire.call(request, 8).groups
    assert found.topics[0].partitions[0].committed_offset == 7


def test_a_produce_to_a_topic_that_is_not_utf8(broker: BrokerProcess) -> None:
    data = TopicProduceData(name=PLACE, partition_data=[PartitionProduceData(index=0, records=records())])
    for version in (8, 9):
        answer = call(broker, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), version, b"a\xffb")
        (found,) = answer.responses
        assert found.name == read_as(b"a\xffb")
        assert found.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Behind the end of a compressed stream --------------------------------------------------------------------------------


def xerial(data: bytes) -> bytes:
    import cramjam

    block = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block


def lz4(data: bytes) -> bytes:
    import cramjam

    packer = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    packer.compress(data)
    return bytes(packer.finish())


def zstd(data: bytes) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data))


GZIP, SNAPPY, LZ4, ZSTD = Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD
SKIPPABLE = b"\x50\x2a\x4d\x18" + b"\x03\0\0\0abc"
FRAMINGS: dict[str, tuple[Compression, Callable[[bytes], bytes], bool]] = {
    "gzip, zeros behind": (GZIP, lambda it: gzip.compress(it) + bytes(8), True),
    "gzip, many bytes behind": (GZIP, lambda it: gzip.compress(it) + b"nothing" * 20, True),
    "gzip, two members": (GZIP, lambda it: gzip.compress(it[:500]) + gzip.compress(it[500:]), True),
    "gzip, two members, a byte behind": (GZIP, lambda it: gzip.compress(it[:9]) + gzip.compress(it[9:]) + b"x", True),
    "gzip, a short beginning of a member": (GZIP, lambda it: gzip.compress(it) + gzip.compress(b"abc")[:18], True),
    "gzip, a member that is cut off": (
        GZIP,
        lambda it: gzip.compress(it) + gzip.compress(random.Random(1).randbytes(99))[:-12],
        False,
    ),
    "gzip, an empty member": (GZIP, lambda it: gzip.compress(it) + gzip.compress(b""), True),
    "lz4, bytes behind": (LZ4, lambda it: lz4(it) + b"abc", True),
    "lz4, a frame behind": (LZ4, lambda it: lz4(it) + lz4(b"more"), True),
    "lz4, two frames": (LZ4, lambda it: lz4(it[:500]) + lz4(it[500:]), False),
    "snappy, two streams": (SNAPPY, lambda it: xerial(it[:500]) + xerial(it[500:]), True),
    "snappy, half a length behind": (SNAPPY, lambda it: xerial(it) + b"\0\0", True),
    "snappy, half a header behind": (SNAPPY, lambda it: xerial(it) + b"\x82SNAPPY\0", False),
    "snappy, another header behind": (SNAPPY, lambda it: xerial(it) + b"\x82SNAPPX\0" + bytes(8), True),
    "snappy, a length without its block": (SNAPPY, lambda it: xerial(it) + b"\0\0\0\x09abc", False),
    "zstd, two frames": (ZSTD, lambda it: zstd(it[:500]) + zstd(it[500:]), True),
    "zstd, a frame that is skipped": (ZSTD, lambda it: zstd(it[:500]) + SKIPPABLE + zstd(it[500:]), True),
    "zstd, a skipped frame at the end": (ZSTD, lambda it: zstd(it) + SKIPPABLE, True),
    "zstd, bytes behind": (ZSTD, lambda it: zstd(it) + b"nothing", False),
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_bytes_behind_the_end_of_a_codec(make_topic: Callable[..., Topic], framing: str) -> None:
    """Where records are looked at: as a topic compresses them anew, and as they are looked up by their time."""
    codec, wrap, is_read = FRAMINGS[framing]
    now = int(time.time() * 1000)
    plain = build_batch([Record(timestamp_ms=now + it, key=b"k", value=zlib.crc32(bytes([it])).to_bytes(4) * 75)
                         for it in range(6)])  # fmt: skip
    made = bytearray(plain[:61]) + wrap(plain[61:])
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, 21, int(codec))
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    anew = make_topic(compression_type="lz4" if codec is ZSTD else "zstd")
    refused = anew.produce(bytes(made)).error_code
    assert (refused == ErrorCode.NONE) is is_read, ErrorCode(refused)
    if is_read:
        as_it_is = make_topic()
        assert as_it_is.produce(bytes(made)).error_code == ErrorCode.NONE
        assert as_it_is.list_offset(now + 3)[0][:3] == (ErrorCode.NONE, now + 3, 3)


# Numbers with no meaning ----------------------------------------------------------------------------------------------


def old_set(magic: int, attributes: int = 0, value: bytes = b"v" * 80) -> bytes:
    """A message set of before record batches."""
    stamp = struct.pack(">q", int(time.time() * 1000)) if magic else b""
    body = struct.pack(">bb", magic, attributes) + stamp + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [3, 9, 12])
def test_message_sets_of_old_formats(topic: Topic, magic: int, version: int) -> None:
    """Whatever lies where a batch has its attributes."""
    for value in (b"\0" * 80, b"\x10" * 80, b"\x30" * 80, b"\xff" * 80, b"\x10"):
        assert topic.produce(old_set(magic, value=value), version=version).error_code == ErrorCode.INVALID_RECORD
    assert topic.list_offset(-1)[0][2] == 0


@pytest.mark.parametrize("level", [2, -1])
def test_isolation_levels_that_there_are_not(topic: Topic, level: int) -> None:
    topic.produce(records())
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    for version in FETCH_VERSIONS:
        answer = topic.fetch_all([(0, 0)], version=version, isolation_level=level)
        told = [(it.error_code, it.high_watermark, it.records) for one in answer.responses for it in one.partitions]
        assert answer.error_code == (unknown if version >= 7 else ErrorCode.NONE)
        assert told == ([(unknown, -1, b"")] if version <= 12 else [])
    for version in range(2, 12):
        answers = topic.list_offset(-1, version=version, isolation_level=level)
        assert [(it[0], it[2]) for it in answers] == [(unknown, -1)]
    assert topic.fetch().error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_the_last_of_a_partition_that_a_produce_names_twice_counts(topic: Topic, version: int) -> None:
    named: dict[str, Any] = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
    first, last, other = (
        PartitionProduceData(index=index, records=records(count)) for index, count in ((0, 2), (0, 3), (1, 1))
    )
    end = 0
    for topics in (
        [TopicProduceData(partition_data=[first, other, last], **named)],
        [TopicProduceData(partition_data=[it], **named) for it in (first, other, last)],
    ):
        answer = topic.wire.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), version)
        told = [(p.index, p.error_code, p.base_offset) for it in answer.responses for p in it.partition_responses]
        assert (len(answer.responses), sorted(told)) == (1, [(0, ErrorCode.NONE, end), (1, ErrorCode.NONE, end // 3)])
        end += 3
        assert topic.list_offset(-1)[0][2] == end
