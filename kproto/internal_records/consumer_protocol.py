"""What consumers of the classic protocol tell each other through the group: subscription and assignment.

For the broker these are opaque bytes, kept and handed on as they came. Each starts with an int16 version,
and a reader that knows only older versions reads what it knows and ignores the rest: fields are only ever
added at the end. The group coordinator of Kafka reads the topics of a subscription to know whether an
offset may be deleted (KIP-496).

Subscription: version 1 adds the partitions a member owns (KIP-429), 2 the generation in which it got them,
3 its rack.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.kproto import codec
from ottla.kproto.errors import DecodeError
from ottla.kproto.schema import Message, Struct, array, bytes_, int32, string

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer

_VERSION = struct.Struct(">h")
VERSION_SIZE: Final = _VERSION.size
"""Bytes of the version that stands before a subscription or an assignment."""


class TopicPartition(Struct):
    topic: str = string("1+")
    partitions: list[int] = array(int32, "1+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array(string, "0+")
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class AssignedTopicPartition(Struct, official_name="TopicPartition"):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[AssignedTopicPartition] = array(AssignedTopicPartition, "0+")
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)


M = TypeVar("M", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def parse_consumer_protocol(cls: type[M], buf: Buffer) -> M:
    """Read a subscription or an assignment; of a version that is not known yet, the known part. Raises DecodeError."""
    if len(buf) < VERSION_SIZE:
        raise DecodeError(f"{cls.__name__} must start with its version")
    (version,) = _VERSION.unpack_from(buf)
    message, _ = codec.parse_prefix(cls, min(version, cls.VERSIONS.highest), buf, VERSION_SIZE)
    return message


def build_consumer_protocol(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    """A subscription or an assignment with its version in front. Raises EncodeError."""
    body = codec.build(message, version)
    return _VERSION.pack(version) + body
