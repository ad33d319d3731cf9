"""What a cluster says of its tiered topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.client.errors import BrokerError
from ottla.client.offsets import EARLIEST_LOCAL, LATEST, TopicPartition, offsets_at
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.client.client import Client

_TOPIC: Final = 2
_BROKER: Final = 4
_TIERED: Final = "remote.storage.enable"
_URL: Final = "ottla.remote.url"
_TOPICS_A_REQUEST: Final = 1000


class KnownTopics(NamedTuple):
    """The topics of a cluster, and of those that are tiered where they begin on their leaders' disks, and end."""

    cluster_id: str
    names: dict[UUID, str]
    tiered: dict[UUID, list[int]]
    local_starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]


def told_url(client: Client) -> str | None:
    """Where a broker of the cluster has its object store; None if it has none, or is no Ottla."""
    brokers = client.metadata([]).brokers
    if not brokers:
        return None
    node_id = brokers[0].node_id
    asked = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(node_id), configuration_keys=[_URL])
    (result,) = client.broker(node_id).call(DescribeConfigsRequest(resources=[asked])).results
    if result.error_code:
        raise BrokerError(result.error_code, result.error_message, what=f"broker {node_id}")
    return next((config.value for config in result.configs if config.name == _URL), None) or None


def known_topics(client: Client, topics: Sequence[str]) -> KnownTopics:
    """What is known of these topics, or of all. Those that are not there are left out."""
    cluster = client.call(DescribeClusterRequest())
    if cluster.error_code:
        raise BrokerError(cluster.error_code, cluster.error_message)
    there = [topic for topic in client.metadata(topics or None).topics if not topic.error_code]
    are_tiered = _tiered(client, [topic.name or "" for topic in there])
    tiered = [topic for topic in there if topic.name in are_tiered]
    partitions = [
        TopicPartition(topic.name or "", each.partition_index) for topic in tiered for each in topic.partitions
    ]
    return KnownTopics(
        cluster.cluster_id,
        {topic.topic_id: topic.name or "" for topic in there},
        {topic.topic_id: sorted(each.partition_index for each in topic.partitions) for topic in tiered},
        offsets_at(client, partitions, EARLIEST_LOCAL),
        offsets_at(client, partitions, LATEST),
    )


def _tiered(client: Client, names: Sequence[str]) -> set[str]:
    """Those of the topics that have `remote.storage.enable`."""
    found = set()
    for first in range(0, len(names), _TOPICS_A_REQUEST):
        asked = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=[_TIERED])
            for name in names[first : first + _TOPICS_A_REQUEST]
        ]
        for result in client.call(DescribeConfigsRequest(resources=asked)).results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # deleted meanwhile
            if result.error_code:
                raise BrokerError(result.error_code, result.error_message, what=f"topic {result.resource_name}")
            if _value(result) == "true":
                found.add(result.resource_name)
    return found


def _value(result: Any) -> str | None:
    return next((config.value for config in result.configs if config.name == _TIERED), None)
