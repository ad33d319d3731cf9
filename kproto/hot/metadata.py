"""Metadata responses out of topics that were encoded before: what was encoded once serves every client that asks.

The bytes are the schema's codec's own. A topic's partitions are encoded in pieces, so that others may run in between.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ottla.kproto import codec
from ottla.kproto.compiler.builder import compile_builder
from ottla.kproto.compiler.runtime import uvarint
from ottla.kproto.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.kproto.codec import Buffer
    from ottla.kproto.schema import StructType

__all__ = ["EncodedTopic", "build_parts", "encode_partitions", "encode_topic", "prepare"]


class EncodedTopic(NamedTuple):
    """A topic's part of a response in one version. It stands where a MetadataResponseTopic may stand."""

    error_code: int
    encoded: bytes


class _Layout(NamedTuple):
    """What of a version follows the response's topics and a topic's partitions, in bytes."""

    is_flexible: bool
    behind_topics: int
    behind_partitions: int


@cache
def _layout(version: int) -> _Layout:
    is_flexible = MetadataResponse.FLEXIBLE_VERSIONS.includes(version)
    tags = 1 if is_flexible else 0
    cluster_operations = 4 if 8 <= version <= 10 else 0
    error_code = 2 if version >= 13 else 0
    topic_operations = 4 if version >= 8 else 0
    return _Layout(is_flexible, cluster_operations + error_code + tags, topic_operations + tags)


def prepare(version: int) -> None:
    """Compile what encoding a topic takes, instead of at its first use. It may run in any thread."""
    _builder(MetadataResponseTopic, version)
    _builder(MetadataResponsePartition, version)


def encode_partitions(partitions: Iterable[MetadataResponsePartition], version: int) -> bytes:
    """Some partitions, one behind the other."""
    build = _builder(MetadataResponsePartition, version)
    parts: list[Buffer] = []
    for partition in partitions:
        build(partition, parts.append)
    return b"".join(parts)


def encode_topic(
    topic: MetadataResponseTopic, version: int, partition_count: int = 0, partitions: Sequence[bytes] = ()
) -> EncodedTopic:
    """A topic without partitions of its own, with so many that were encoded already."""
    parts: list[Buffer] = []
    _builder(MetadataResponseTopic, version)(topic, parts.append)
    layout = _layout(version)
    encoded = _filled(b"".join(parts), layout.behind_partitions, partition_count, partitions, layout)
    return EncodedTopic(topic.error_code, encoded)


def build_parts(response: MetadataResponse, version: int) -> list[Buffer]:
    """The encoded response, whose topics are encoded all, or none of them."""
    topics: Sequence[object] = response.topics
    encoded = [topic.encoded for topic in topics if isinstance(topic, EncodedTopic)]
    if not encoded:
        return [codec.build(response, version)]
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
    return [_filled(codec.build(around, version), layout.behind_topics, len(encoded), encoded, layout)]


def _filled(around: bytes, behind: int, count: int, items: Sequence[bytes], layout: _Layout) -> bytes:
    """Put items in the place of the empty list that has `behind` bytes behind it."""
    end = len(around) - behind
    start = end - (1 if layout.is_flexible else 4)
    length = uvarint(count + 1) if layout.is_flexible else struct.pack(">i", count)
    return b"".join((around[:start], length, *items, around[end:]))


@cache
def _builder(cls: StructType, version: int) -> Callable[..., None]:
    return compile_builder(cls, version, flexible=_layout(version).is_flexible)
