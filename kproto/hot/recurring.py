"""Requests that differ from an earlier one in their records alone, as those of a producer mostly do.

A Produce of one partition is read once: its header, and all that stands around its records. Of a later one with the
same bytes there only the correlation id and the records are read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.headers import RequestHeader
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.kproto.codec import Buffer
    from ottla.kproto.schema import Field, Request, TaggedField

_new = object.__new__
# The API key with the version, and the correlation id.
_unpack_start = struct.Struct(">ii").unpack_from
# A member of an enumeration costs as much to look up as two calls.
_PRODUCE: Final = ApiKey.PRODUCE
#: Where what recurs begins, after the correlation id.
RECURRING_FROM: Final = 8
_FIRST_FLEXIBLE: Final = 9
_FIRST_BY_ID: Final = 13
# After the records: no tagged fields of the partition, the topic and the request.
_NO_TAGS: Final = b"\0\0\0"


class LoneProduce:
    """A request of one partition: `ProduceRequest`, of which only the records were parsed."""

    __slots__ = ("acks", "records", "recurring", "timeout_ms", "transactional_id")

    API_KEY: ClassVar[ApiKey] = ApiKey.PRODUCE
    FIELDS: ClassVar[tuple[Field, ...]] = ProduceRequest.FIELDS
    unknown_tagged_fields: ClassVar[tuple[TaggedField, ...]] = ()

    transactional_id: str | None
    acks: int
    timeout_ms: int
    records: memoryview
    #: What it has in common with others.
    recurring: RecurringProduce

    @property
    def topic_data(self) -> list[TopicProduceData]:
        """The one topic, with its one partition."""
        partition = PartitionProduceData(index=self.recurring.index, records=self.records)
        named = self.recurring
        return [TopicProduceData(name=named.name, topic_id=named.topic_id, partition_data=[partition])]

    def whole(self) -> ProduceRequest:
        """What the parser would have made of it."""
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            topic_data=self.topic_data,
        )


class RecurringProduce:
    """All of a Produce request of one partition but its correlation id and its records."""

    __slots__ = (
        "_acks", "_client_id", "_end", "_start", "_timeout_ms", "_transactional_id",
        "api_version", "body_start", "index", "name", "target", "topic_id",
    )  # fmt: skip

    def __init__(self, header: RequestHeader, body_start: int, end: int, request: ProduceRequest, start: int) -> None:
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        self._start = start
        self._end = end
        self._client_id = header.client_id
        self._transactional_id = request.transactional_id
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self.api_version = header.api_version
        self.body_start = body_start
        self.name: str = topic.name
        self.topic_id: UUID = topic.topic_id
        self.index: int = partition.index
        #: For the handler: what it has found out about the partition that is named here.
        self.target: Any = None

    def parse(self, buf: Buffer) -> tuple[RequestHeader, LoneProduce] | None:
        """A request that has the same bytes from `RECURRING_FROM` up to the records' size; None if it differs."""
        start, correlation_id = _unpack_start(buf)
        if start != self._start:
            return None
        p = self._end
        try:
            size = buf[p]
            p += 1
            if size >= 0x80:
                size += (buf[p] << 7) - 0x80
                p += 1
                if size >= 0x4000:
                    size += (buf[p] << 14) - 0x4000
                    p += 1
        except IndexError:
            return None
        end = p + size - 1
        if not 0 < size < 0x200000 or buf[end:] != _NO_TAGS:
            return None
        header = _new(RequestHeader)
        header.api_key = _PRODUCE
        header.api_version = self.api_version
        header.correlation_id = correlation_id
        header.client_id = self._client_id
        header.unknown_tagged_fields = ()
        request = _new(LoneProduce)
        request.transactional_id = self._transactional_id
        request.acks = self._acks
        request.timeout_ms = self._timeout_ms
        request.records = memoryview(buf)[p:end]
        request.recurring = self
        return header, request


def recurring_of(
    buf: Buffer, header: RequestHeader, body_start: int, request: Request
) -> tuple[RecurringProduce, int] | None:
    """What may recur of a request that was parsed, and where that ends; None of anything but an ordinary Produce of
    one partition.
    """
    if (
        not isinstance(request, ProduceRequest)
        or header.api_version < _FIRST_FLEXIBLE
        or header.unknown_tagged_fields
        or len(request.topic_data) != 1
        or len(request.topic_data[0].partition_data) != 1
    ):
        return None
    end = _end_of_index(buf, body_start, header.api_version)
    if end is None:
        return None
    found = RecurringProduce(header, body_start, end, request, _unpack_start(buf)[0])
    # It says so of everything that is not as it should be: tagged fields, records that are null, a long size.
    return None if found.parse(buf) is None else (found, end)


def _end_of_index(buf: Buffer, p: int, version: int) -> int | None:
    """Where the partition's index ends; None if a length before it takes more than one byte."""
    if buf[p] > 0x7F:
        return None
    p += (buf[p] or 1) + 7  # the transactional id, acks, timeout and the number of topics
    if version >= _FIRST_BY_ID:
        p += 16
    elif buf[p] > 0x7F:
        return None
    else:
        p += buf[p]
    return p + 5
