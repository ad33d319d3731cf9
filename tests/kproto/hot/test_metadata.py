"""Topics that were encoded before, in a response: the bytes are those of the schema's codec."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto import codec
from ottla.kproto.hot.metadata import build_parts, encode_partitions, encode_topic
from ottla.kproto.messages.topics.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSIONS = range(MetadataResponse.VERSIONS.lowest, MetadataResponse.VERSIONS.highest + 1)

_INT32 = st.integers(-(2**31), 2**31 - 1)
_IDS = st.lists(_INT32, max_size=4)
_PARTITIONS = st.builds(
    MetadataResponsePartition,
    error_code=st.integers(-1, 130),
    partition_index=_INT32,
    leader_id=_INT32,
    leader_epoch=_INT32,
    replica_nodes=_IDS,
    isr_nodes=_IDS,
    offline_replicas=_IDS,
)
_TOPICS = st.builds(
    MetadataResponseTopic,
    error_code=st.integers(-1, 130),
    name=st.text(max_size=200),
    topic_id=st.uuids(),
    is_internal=st.booleans(),
    partitions=st.lists(_PARTITIONS, max_size=5),
)
_RESPONSES = st.builds(
    MetadataResponse,
    throttle_time_ms=_INT32,
    brokers=st.lists(
        st.builds(MetadataResponseBroker, node_id=_INT32, host=st.text(max_size=9), port=_INT32), max_size=3
    ),
    cluster_id=st.none() | st.text(max_size=30),
    controller_id=_INT32,
    topics=st.lists(_TOPICS, max_size=4),
    error_code=st.integers(-1, 130),
)


def encoded(topic: MetadataResponseTopic, version: int, step: int) -> Any:
    alone = copy(topic)
    alone.partitions = []
    pieces = [
        encode_partitions(topic.partitions[first : first + step], version)
        for first in range(0, len(topic.partitions), step)
    ]
    return encode_topic(alone, version, len(topic.partitions), pieces)


@given(_RESPONSES, st.sampled_from(VERSIONS), _INT32, _INT32, st.integers(1, 6))
def test_the_bytes_are_the_codecs(
    response: MetadataResponse, version: int, topic_operations: int, cluster_operations: int, step: int
) -> None:
    if version >= 8:
        for topic in response.topics:
            topic.topic_authorized_operations = topic_operations
    if 8 <= version <= 10:
        response.cluster_authorized_operations = cluster_operations
    expected = codec.build(response, version)
    response.topics = [encoded(topic, version, step) for topic in response.topics]
    assert b"".join(build_parts(response, version)) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 126, 127, 128, 20_000])
def test_any_number_of_topics_and_partitions(version: int, count: int) -> None:
    partitions = [MetadataResponsePartition(partition_index=7, replica_nodes=[1]) for _ in range(count)]
    topics = [MetadataResponseTopic(name="t") for _ in range(count % 1000)]
    response = MetadataResponse(topics=[MetadataResponseTopic(name="large", partitions=partitions), *topics])
    expected = codec.build(response, version)
    response.topics = [encoded(topic, version, 5_000) for topic in response.topics]
    assert b"".join(build_parts(response, version)) == expected


def test_a_response_of_plain_topics_is_built_as_ever() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t", error_code=3)])
    assert build_parts(response, 12) == [codec.build(response, 12)]
