"""Produce requests as producers send them, parsed faster than the schema's codec can, and light answers to them.

The builder writes the answer to what most requests are: one partition, which has taken its records.

The parser reads the ordinary request: names of up to 126 bytes, records up to 2 MiB a partition in the flexible
versions, no null where none belongs, no tagged fields. Whatever else it meets, malformed input included, it leaves to
the schema's codec: the result and the errors are always that one's. Records are views of the frame.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.kproto import codec
from ottla.kproto.compiler.runtime import uuid_of
from ottla.kproto.messages.data.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.kproto.schema import ZERO_UUID
from ottla.kproto.text import ERRORS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from ottla.kproto.codec import Buffer
    from ottla.kproto.messages.data.produce import BatchIndexAndErrorMessage
    from ottla.kproto.schema import TaggedField

_new = object.__new__
_unpack_int16 = struct.Struct(">h").unpack_from
_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_acks_timeout_count = struct.Struct(">hii").unpack_from
_unpack_acks_timeout_short_count = struct.Struct(">hiB").unpack_from
_unpack_index_size = struct.Struct(">ii").unpack_from
# Behind the index come the records' size, a varint, and at the least the tag sections of partition, topic and request:
# three more bytes can always be read.
_unpack_index_varint = struct.Struct(">iBBB").unpack_from

_NO_LEADER = LeaderIdAndEpoch()

# The count of partitions, the partition's answer, the throttle time and the count of tagged fields.
_pack_lone = struct.Struct(">Bihqqq4siB").pack
_FIRST_FLEXIBLE = 9
_FIRST_BY_ID = 13
_MAX_SHORT_NAME = 126
# A short string's size, which is written as one more.
_SHORT_SIZES = [bytes((size + 1,)) for size in range(_MAX_SHORT_NAME + 1)]

#: Requests of more partitions are left to the schema's codec.
_MAX_PARTITIONS = 512


class ProducedPartition:
    """One partition's answer: the light twin of `PartitionProduceResponse`, with its attributes.

    What it says only of a failure is shared by all that have not failed, so that making one costs a quarter.
    """

    __slots__ = (
        "base_offset", "current_leader", "error_code", "error_message", "index", "log_append_time_ms",
        "log_start_offset", "record_errors", "unknown_tagged_fields",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.error_code = 0
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.log_start_offset = -1
        self.record_errors: Sequence[BatchIndexAndErrorMessage] = ()
        self.error_message: str | None = None
        self.current_leader = _NO_LEADER
        self.unknown_tagged_fields: tuple[TaggedField, ...] = ()


def produced_response() -> ProduceResponse:
    """An answer without topics."""
    response = _new(ProduceResponse)
    response.responses, response.node_endpoints = [], []
    response.throttle_time_ms = 0
    response.unknown_tagged_fields = ()
    return response


def produced_topic(name: str, topic_id: UUID, answers: list[ProducedPartition]) -> TopicProduceResponse:
    """The answer to one topic."""
    topic = _new(TopicProduceResponse)
    topic.name, topic.topic_id = name, topic_id
    topic.partition_responses = answers  # type: ignore[assignment] # the light twins of its elements
    topic.unknown_tagged_fields = ()
    return topic


def build_parts(response: ProduceResponse, version: int) -> list[Buffer]:
    """The encoded response in pieces, as `codec.build_parts` gives it, but joined."""
    body = _build_lone(response, version) if version >= _FIRST_FLEXIBLE and len(response.responses) == 1 else None
    return [codec.build(response, version) if body is None else body]


def _build_lone(response: ProduceResponse, version: int) -> bytes | None:
    topic = response.responses[0]
    if len(topic.partition_responses) != 1:
        return None
    answer: object = topic.partition_responses[0]
    if (
        type(answer) is not ProducedPartition
        or answer.error_code
        or answer.unknown_tagged_fields
        or topic.unknown_tagged_fields
        or response.unknown_tagged_fields
        or response.node_endpoints
    ):
        return None
    try:
        if version >= _FIRST_BY_ID:
            name = topic.topic_id.bytes
        else:
            name = topic.name.encode()
            name = _SHORT_SIZES[len(name)] + name
        rest = _pack_lone(
            2,
            answer.index,
            0,
            answer.base_offset,
            answer.log_append_time_ms,
            answer.log_start_offset,
            b"\1",  # no record errors, no message, and no tagged fields of the partition and of the topic
            response.throttle_time_ms,
            0,
        )
    except (struct.error, UnicodeEncodeError, IndexError):
        return None  # an IndexError for a longer name
    return b"\2" + name + rest


def parse_request(version: int, buf: Buffer, pos: int = 0) -> ProduceRequest:
    """Parse the body of a Produce request, as `codec.parse_request` does."""
    view = memoryview(buf)
    request = _parse_ordinary(version, view, pos)
    return codec.parse_prefix(ProduceRequest, version, buf, pos)[0] if request is None else request


def parse_lone_request(version: int, buf: Buffer, pos: int = 0) -> ProduceRequest | None:
    """`parse_request` of an ordinary request of one partition, however large; None, in a moment, for any other."""
    view = memoryview(buf)
    try:
        is_lone = _is_lone_flexible(view, pos, version) if version >= _FIRST_FLEXIBLE else _is_lone_classic(view, pos)
    except (struct.error, IndexError):
        return None
    return _parse_ordinary(version, view, pos) if is_lone else None


def _is_lone_flexible(buf: memoryview, p: int, version: int) -> bool:
    p += buf[p] or 1  # the transactional id, with its size; none is one byte
    if buf[p + 6] != 2:
        return False
    p += 7
    p += 16 if version >= _FIRST_BY_ID else buf[p]
    return buf[p] == 2


def _is_lone_classic(buf: memoryview, p: int) -> bool:
    p += 2 + max(0, _unpack_int16(buf, p)[0])
    if _unpack_int32(buf, p + 6)[0] != 1:
        return False
    p += 10
    p += 2 + max(0, _unpack_int16(buf, p)[0])
    return bool(_unpack_int32(buf, p)[0] == 1)


def parse_request_in_steps(
    version: int, buf: Buffer, pos: int = 0, begun: codec.Begun | None = None
) -> codec.Steps[ProduceRequest]:
    """Parse the body of a Produce request, as `codec.parse_request_in_steps` does."""
    request = _parse_ordinary(version, memoryview(buf), pos)
    if request is None:
        request, _ = yield from codec.parse_prefix_in_steps(ProduceRequest, version, buf, pos, begun)
    return request


def _parse_ordinary(version: int, view: memoryview, pos: int) -> ProduceRequest | None:
    try:
        if 9 <= version <= 13:
            return _parse_flexible(view, pos, version)
        if 3 <= version <= 8:
            return _parse_classic(view, pos)
    except (struct.error, IndexError, UnicodeDecodeError):
        pass
    return None


def _parse_flexible(buf: memoryview, p: int, version: int) -> ProduceRequest | None:  # noqa: C901 - flat for speed
    size = len(buf)
    left = _MAX_PARTITIONS
    request = _new(ProduceRequest)
    n = buf[p]
    p += 1
    if n == 0:
        request.transactional_id = None
    else:
        end = p + n - 1
        if n > 127 or end > size:
            return None
        request.transactional_id = str(buf[p:end], "utf-8", ERRORS)
        p = end
    request.acks, request.timeout_ms, n = _unpack_acks_timeout_short_count(buf, p)
    p += 7
    if not 0 < n <= 127:
        return None
    request.topic_data = topics = []
    for _ in range(n - 1):
        topic = _new(TopicProduceData)
        if version >= 13:
            end = p + 16
            if end > size:
                return None
            topic.name = ""
            topic.topic_id = uuid_of(bytes(buf[p:end]))
        else:
            n = buf[p]
            p += 1
            end = p + n - 1
            if not 0 < n <= 127 or end > size:
                return None
            topic.name = str(buf[p:end], "utf-8", ERRORS)
            topic.topic_id = ZERO_UUID
        n = buf[end]
        p = end + 1
        left -= n
        if not 0 < n <= 127 or left < 0:
            return None
        topic.partition_data = partitions = []
        for _ in range(n - 1):
            partition = _new(PartitionProduceData)
            partition.index, n, second, third = _unpack_index_varint(buf, p)
            if n < 0x80:
                p += 5
            elif second < 0x80:
                n += (second << 7) - 0x80
                p += 6
            elif third < 0x80:
                n += (second << 7) + (third << 14) - 0x4080
                p += 7
            else:
                return None
            end = p + n - 1
            # The byte at the end is the number of tagged fields; a size of 0 means null.
            if n == 0 or buf[end]:
                return None
            partition.records = buf[p:end]
            partition.unknown_tagged_fields = ()
            partitions.append(partition)
            p = end + 1
        if buf[p]:
            return None
        p += 1
        topic.unknown_tagged_fields = ()
        topics.append(topic)
    if buf[p] or p + 1 != size:
        return None
    request.unknown_tagged_fields = ()
    return request


def _parse_classic(buf: memoryview, p: int) -> ProduceRequest | None:
    size = len(buf)
    left = _MAX_PARTITIONS
    request = _new(ProduceRequest)
    (n,) = _unpack_int16(buf, p)
    p += 2
    if n < 0:
        request.transactional_id = None
    else:
        end = p + n
        if end > size:
            return None
        request.transactional_id = str(buf[p:end], "utf-8", ERRORS)
        p = end
    request.acks, request.timeout_ms, n = _unpack_acks_timeout_count(buf, p)
    p += 10
    if not 0 <= n <= left:
        return None
    request.topic_data = topics = []
    for _ in range(n):
        topic = _new(TopicProduceData)
        end = p + 2 + _unpack_int16(buf, p)[0]
        if not p + 2 <= end <= size:
            return None
        topic.name = str(buf[p + 2 : end], "utf-8", ERRORS)
        topic.topic_id = ZERO_UUID
        (n,) = _unpack_int32(buf, end)
        p = end + 4
        left -= n + 1
        if n < 0 or left < 0:
            return None
        topic.partition_data = partitions = []
        for _ in range(n):
            partition = _new(PartitionProduceData)
            partition.index, n = _unpack_index_size(buf, p)
            p += 8
            end = p + n
            if n < 0 or end > size:
                return None
            partition.records = buf[p:end]
            partition.unknown_tagged_fields = ()
            partitions.append(partition)
            p = end
        topic.unknown_tagged_fields = ()
        topics.append(topic)
    if p != size:
        return None
    request.unknown_tagged_fields = ()
    return request
