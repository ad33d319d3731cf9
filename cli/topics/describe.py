"""`ottla topic describe`: a topic's settings, its partitions with their offsets and sizes, and who lags behind."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli import options
from ottla.client.admin.group_state import Coordinator, committed_offsets
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.client.offsets import EARLIEST, LATEST, TopicPartition, offsets_at
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.data.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest

_TOPIC_RESOURCE = 2
_DYNAMIC_TOPIC_CONFIG = 1


class Extent(NamedTuple):
    """A partition's log. None: the partition has no leader now, or its folder is not known."""

    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None

    @property
    def records(self) -> int | None:
        """How many offsets there are; records may be fewer, because markers and compaction leave gaps."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


class Described(NamedTuple):
    """A topic as it is shown."""

    topic: Any
    configs: dict[str, str | None]
    extents: dict[int, Extent]
    lags: dict[str, int]


def describe(client: Client, arguments: argparse.Namespace) -> None:
    """Print the topics that were named."""
    topics = [client.topic(name) for name in arguments.topics]
    committed = _committed(client, arguments.timeout)
    described = [_describe(client, topic, committed) for topic in topics]
    if arguments.json:
        print(json.dumps([_as_json(each) for each in described], indent=2))
        return
    for each in described:
        _print(each)


def _describe(client: Client, topic: Any, committed: Mapping[str, Mapping[TopicPartition, int]]) -> Described:
    partitions = [TopicPartition(topic.name, state.partition_index) for state in topic.partitions]
    starts, ends = offsets_at(client, partitions, EARLIEST), offsets_at(client, partitions, LATEST)
    sizes = _sizes(client, topic)
    extents = {
        each.partition: Extent(starts.get(each), ends.get(each), sizes.get(each.partition)) for each in partitions
    }
    lags = {}
    for group_id, offsets in committed.items():
        behind = [max(end - offsets[each], 0) for each, end in ends.items() if each in offsets]
        if behind:
            lags[group_id] = sum(behind)
    return Described(topic, _configs(client, topic.name), extents, lags)


def _committed(client: Client, timeout_seconds: float) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of each group of the cluster."""
    groups: set[str] = set()
    for broker in client.metadata([]).brokers:
        groups |= {group.group_id for group in client.broker(broker.node_id).call(ListGroupsRequest()).groups}
    coordinator = Coordinator(client, timeout_seconds)
    return {group_id: committed_offsets(coordinator, group_id) for group_id in sorted(groups)}


def _sizes(client: Client, topic: Any) -> dict[int, int]:
    """The disk space that each partition takes, on the broker that has most of it."""
    indexes = [state.partition_index for state in topic.partitions]
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic.name, partitions=indexes)])
    sizes: dict[int, int] = {}
    for broker in client.metadata([]).brokers:
        for folder in client.broker(broker.node_id).call(request).results:
            for found in (partition for each in folder.topics for partition in each.partitions):
                sizes[found.partition_index] = max(found.partition_size, sizes.get(found.partition_index, 0))
    return sizes


def _configs(client: Client, topic: str) -> dict[str, str | None]:
    """The settings of the topic itself."""
    resource = DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=None)
    (result,) = client.call(DescribeConfigsRequest(resources=[resource])).results
    if result.error_code:
        raise BrokerError(result.error_code, result.error_message, what=f"topic {topic}")
    return {c.name: c.value for c in result.configs if c.config_source == _DYNAMIC_TOPIC_CONFIG}


def _print(described: Described) -> None:
    topic, configs, extents, lags = described
    changed = ", ".join(f"{name}={options.setting_value(name, value)}" for name, value in configs.items())
    size = options.human_size(sum(extent.size_bytes or 0 for extent in extents.values()))
    print(f"{topic.name}  id {topic.topic_id}  size {size}  settings: {changed or 'all default'}")
    options.print_table(
        ("  PARTITION", "START", "END", "RECORDS", "SIZE", "LEADER", "EPOCH", "REPLICAS", "IN SYNC"),
        (_row(state, extents[state.partition_index]) for state in sorted(topic.partitions, key=_index)),
    )
    if lags:
        options.print_table(("  GROUP", "LAG"), ((f"  {group_id}", lag) for group_id, lag in sorted(lags.items())))


def _row(state: Any, extent: Extent) -> Sequence[object]:
    size = "-" if extent.size_bytes is None else options.human_size(extent.size_bytes)
    offsets = (_shown(extent.start_offset), _shown(extent.end_offset), _shown(extent.records), size)
    replicas = (_ids(state.replica_nodes), _ids(state.isr_nodes))
    return (f"  {state.partition_index}", *offsets, state.leader_id, state.leader_epoch, *replicas)


def _index(state: Any) -> int:
    return int(state.partition_index)


def _shown(value: int | None) -> str:
    return "-" if value is None else str(value)


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


def _as_json(described: Described) -> dict[str, Any]:
    shown = topic_as_json(described.topic)
    for partition in shown["partitions"]:
        partition |= described.extents[partition["partition"]]._asdict()
    return shown | {"configs": described.configs, "lag": described.lags}


def topic_as_json(topic: Any) -> dict[str, Any]:
    """A topic from a Metadata response, as JSON."""
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": partition.partition_index,
                "leader": partition.leader_id,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replica_nodes,
                "isr": partition.isr_nodes,
            }
            for partition in sorted(topic.partitions, key=_index)
        ],
    }
