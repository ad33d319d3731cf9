"""Which replicas are copied under a throttle, and how fast each node may copy them (KIP-73)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console.formatting import size
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.runtime.time_slice import TimeSlice
from ottla.settings.types import INT64_MAX

if TYPE_CHECKING:
    from ottla.metadata.image import PartitionState, TopicImage
    from ottla.server.broker import Broker

_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"


class ThrottledReplicas(NamedTuple):
    """The nodes that send a partition under a throttle when they lead it, and those that fetch it under one."""

    sent_by: tuple[int, ...]
    fetched_by: tuple[int, ...]


class NodeRates(NamedTuple):
    """How much a node copies of throttled replicas in a second at most, in words."""

    node_id: int
    sends: str
    fetches: str


async def throttled(broker: Broker, topic: TopicImage, indexes: Collection[int]) -> Mapping[int, ThrottledReplicas]:
    """Of some of a topic's partitions those that have throttled replicas, in slices of the loop's time."""
    settings = broker.config.topic_config(topic.configs)
    sent = await _named(settings.leader_replication_throttled_replicas, indexes, topic.partitions)
    fetched = await _named(settings.follower_replication_throttled_replicas, indexes, topic.partitions)
    return {
        index: ThrottledReplicas(sent.get(index, ()), fetched.get(index, ()))
        for index in indexes
        if index in sent or index in fetched
    }


def rates(broker: Broker, marked: Iterable[ThrottledReplicas]) -> list[NodeRates]:
    """The rates of all nodes that have such replicas, in their order."""
    nodes = {node_id for each in marked for node_id in (*each.sent_by, *each.fetched_by)}
    return [
        NodeRates(node_id, _rate(broker, node_id, _LEADER_RATE), _rate(broker, node_id, _FOLLOWER_RATE))
        for node_id in sorted(nodes)
    ]


async def _named(
    replicas: Sequence[str], indexes: Collection[int], partitions: Sequence[PartitionState]
) -> Mapping[int, tuple[int, ...]]:
    """By partition the nodes that a topic's setting names: it is `*`, or has pairs `partition:broker`."""
    if tuple(replicas) == ("*",):
        return {index: partitions[index].replicas for index in indexes}
    named: dict[int, tuple[int, ...]] = {}
    slices = TimeSlice()
    for replica in replicas:
        partition, _, node_id = replica.partition(":")
        if int(partition) in indexes:
            named[int(partition)] = (*named.get(int(partition), ()), int(node_id))
        if slices.is_over:
            await slices.maybe_yield()
    return named


def _rate(broker: Broker, node_id: int, name: str) -> str:
    """Of another node only what the cluster has set for it, or for all, is known here."""
    own = {
        _LEADER_RATE: broker.config.leader_replication_throttled_rate,
        _FOLLOWER_RATE: broker.config.follower_replication_throttled_rate,
    }
    configs = broker.metadata.resource_configs
    set_here = configs(ConfigResource(ResourceType.BROKER, str(node_id))).get(name)
    set_for_all = configs(ConfigResource(ResourceType.BROKER, "")).get(name)
    if node_id == broker.node_id:
        rate = own[name]
    elif set_here is not None or set_for_all is not None:
        rate = int(set_here or set_for_all or INT64_MAX)
    else:
        return "its own setting"
    return f"{size(rate)}/s" if rate < INT64_MAX else "no limit"
