"""Metadata responses out of topics that were encoded before: what was encoded once serves every client that asks.

The bytes are the schema's codec's own. A topic's partitions are encoded in pieces, so that others may run in between.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ottla.kproto import codec
from ottla.kproto.compiler.layout import STEP_ELEMENTS
from ottla.kproto.compiler.runtime import uvarint
from ottla.kproto.messages.topics.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.codec import Buffer

__all__ = ["EncodedTopic", "build_in_steps", "build_parts", "encode_partitions", "encode_topic"]


class EncodedTopic(NamedTuple):
    """A topic's part of a response in one version. It stands where a MetadataResponseTopic may stand."""

    error_code: int
    encoded: bytes


class _Layout(NamedTuple):
    """How many bytes of a version stand around the topics of a response and the partitions of a topic.

    What is before counts for a response of defaults and its list of one topic, and for a topic without a name.
    """

    is_flexible: bool
    before_topics: int
    behind_topics: int
    before_partitions: int
    behind_partitions: int


@cache
def _layout(version: int) -> _Layout:
    is_flexible = MetadataResponse.FLEXIBLE_VERSIONS.includes(version)
    tags = 1 if is_flexible else 0
    count = 1 if is_flexible else 4
    cluster_operations = 4 if 8 <= version <= 10 else 0
    error_code = 2 if version >= 13 else 0
    topic_operations = 4 if version >= 8 else 0
    behind_topics = cluster_operations + error_code + tags
    behind_partitions = topic_operations + tags
    before_topics = len(codec.build(MetadataResponse(), version)) - behind_topics
    one = len(codec.build(MetadataResponse(topics=[MetadataResponseTopic(name="")]), version))
    before_partitions = one - before_topics - behind_topics - behind_partitions - count
    return _Layout(is_flexible, before_topics, behind_topics, before_partitions, behind_partitions)


def encode_partitions(partitions: Sequence[MetadataResponsePartition], version: int) -> bytes:
    """Some partitions, one behind the other."""
    layout = _layout(version)
    encoded = _topic(MetadataResponseTopic(name="", partitions=list(partitions)), version)
    start = layout.before_partitions + len(_count(len(partitions), layout))
    return encoded[start : len(encoded) - layout.behind_partitions]


def encode_topic(
    topic: MetadataResponseTopic, version: int, partition_count: int = 0, partitions: Sequence[bytes] = ()
) -> EncodedTopic:
    """A topic without partitions of its own, with so many that were encoded already."""
    layout = _layout(version)
    encoded = _filled(_topic(topic, version), layout.behind_partitions, partition_count, partitions, layout)
    return EncodedTopic(topic.error_code, encoded)


def build_parts(response: MetadataResponse, version: int) -> list[Buffer]:
    """The encoded response, whose topics are encoded all, or none of them."""
    topics: Sequence[object] = response.topics
    encoded = [topic.encoded for topic in topics if isinstance(topic, EncodedTopic)]
    if not encoded:
        return [codec.build(response, version)]
    head, end = _around(response, len(encoded), version)
    return [b"".join((head, *encoded, end))]


def build_in_steps(response: MetadataResponse, version: int) -> codec.Steps[list[Buffer]]:
    """`build_parts` with stops, and in several pieces."""
    topics: Sequence[object] = response.topics
    if not topics or not isinstance(topics[0], EncodedTopic):
        return list((yield from codec.build_in_steps(response, version)))
    head, end = _around(response, len(topics), version)
    parts: list[Buffer] = [head]
    for first in range(0, len(topics), STEP_ELEMENTS):
        some = topics[first : first + STEP_ELEMENTS]
        parts.append(b"".join(topic.encoded for topic in some if isinstance(topic, EncodedTopic)))
        yield
    parts.append(end)
    return parts


def _around(response: MetadataResponse, count: int, version: int) -> tuple[bytes, bytes]:
    """What comes before and after this many topics in a response."""
    around = MetadataResponse(
        throttle_time_ms=response.throttle_time_ms,
        brokers=response.brokers,
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topics=[],
        cluster_authorized_operations=response.cluster_authorized_operations,
        error_code=response.error_code,
    )
    layout = _layout(version)
    return _split(codec.build(around, version), layout.behind_topics, count, layout)


def _topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """A topic's part of a response: cut out of one, since the code for a whole response is compiled anyway."""
    encoded = codec.build(MetadataResponse(topics=[topic]), version)
    layout = _layout(version)
    return encoded[layout.before_topics : len(encoded) - layout.behind_topics]


def _filled(around: bytes, behind: int, count: int, items: Sequence[bytes], layout: _Layout) -> bytes:
    """Put items in place of the empty list that has `behind` bytes behind it."""
    head, end = _split(around, behind, count, layout)
    return b"".join((head, *items, end))


def _split(around: bytes, behind: int, count: int, layout: _Layout) -> tuple[bytes, bytes]:
    """What stands before `count` items in place of the empty list, and the `behind` bytes behind them."""
    end = len(around) - behind
    start = end - len(_count(0, layout))
    return around[:start] + _count(count, layout), around[end:]


def _count(count: int, layout: _Layout) -> bytes:
    return uvarint(count + 1) if layout.is_flexible else struct.pack(">i", count)
