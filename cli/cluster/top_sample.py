"""Samples of a cluster for `ottla top`: two of them give rates.

Everything comes from requests that any Kafka broker answers, except memory, connections and the filters of a proxy:
those come from /metrics.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client.admin.group_state import SHARE, Coordinator, committed_offsets
from ottla.client.admin.share_state import share_positions
from ottla.client.client import Client
from ottla.client.offsets import LATEST, TopicPartition, offsets_at
from ottla.kproto.messages.data.describe_log_dirs import DescribeLogDirsRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest

MOST_GROUPS: Final = 100
_SAMPLE: Final = re.compile(r"(\w+)(?:\{([^}]*)\})? (\S+)")
_NODE: Final = re.compile(r'\bnode="(\d+)"')
_WANTED: Final = {
    "process_resident_memory_bytes": "memory_bytes",
    "process_cpu_seconds_total": "cpu_seconds",
    "ottla_connections": "connections",
    "ottla_request_bytes_total": "bytes_in",
    "ottla_response_bytes_total": "bytes_out",
    # A proxy's.
    "ottla_proxy_connections": "connections",
    "ottla_proxy_request_bytes_total": "bytes_in",
    "ottla_proxy_response_bytes_total": "bytes_out",
}
_OF_FILTER: Final = re.compile(
    r'ottla_proxy_filter_(calls|seconds|refusals)_total\{filter="((?:[^"\\]|\\.)*)"\} (\S+)', re.MULTILINE
)


@dataclass(slots=True)
class NodeSample:
    """One node: what is in its folders, how many groups it coordinates, and its metrics if a page has them."""

    size_bytes: int = 0
    groups: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Sample:
    """A cluster at one time. `ends` has the end of every partition, `lags` each group's lag over all its partitions."""

    seconds: float
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    filters: dict[str, dict[str, float]] = field(default_factory=dict)
    """Counters of a proxy by filter: calls, seconds, refusals."""
    leaders: dict[TopicPartition, int] = field(default_factory=dict)
    nodes: dict[int, NodeSample] = field(default_factory=dict)
    """The nodes that are there."""


def take(client: Client, timeout_seconds: float, read_metrics: Callable[[], str] | None, *, internal: bool) -> Sample:
    metadata = client.metadata(None)
    topics = [topic for topic in metadata.topics if internal or not topic.is_internal]
    partitions = [
        TopicPartition(topic.name or "", state.partition_index) for topic in topics for state in topic.partitions
    ]
    sample = Sample(time.monotonic())
    sample.nodes = {broker.node_id: NodeSample() for broker in metadata.brokers}
    sample.leaders = {
        TopicPartition(topic.name or "", state.partition_index): state.leader_id
        for topic in topics
        for state in topic.partitions
    }
    sample.ends = dict(offsets_at(client, partitions, LATEST))
    _add_sizes(client, sample)
    _add_groups(client, timeout_seconds, sample)
    if read_metrics is not None:
        text = read_metrics()
        sample.metrics = _sums(text)
        for node_id, node in sample.nodes.items():
            node.metrics = _sums(text, node_id)
        for what, name, value in _OF_FILTER.findall(text):
            sample.filters.setdefault(name, {})[what] = float(value)
    return sample


def _add_sizes(client: Client, sample: Sample) -> None:
    for node_id, node in sample.nodes.items():
        for folder in client.broker(node_id).call(DescribeLogDirsRequest(topics=None)).results:
            for topic in folder.topics:
                size_bytes = sum(it.partition_size for it in topic.partitions)
                node.size_bytes += size_bytes
                sample.sizes[topic.name] = sample.sizes.get(topic.name, 0) + size_bytes


def _add_groups(client: Client, timeout_seconds: float, sample: Sample) -> None:
    groups: list[Any] = []
    for node_id, node in sample.nodes.items():
        listed = client.broker(node_id).call(ListGroupsRequest()).groups
        node.groups = len(listed)
        groups += listed
    coordinator = Coordinator(client, timeout_seconds)
    for group in sorted(groups, key=lambda it: it.group_id)[:MOST_GROUPS]:
        sample.states[group.group_id] = group.group_state
        if group.group_type == SHARE:
            positions = share_positions(coordinator, group.group_id)
            sample.lags[group.group_id] = sum(each.lag or 0 for each in positions.values())
            continue
        committed = committed_offsets(coordinator, group.group_id)
        ends = {it: sample.ends[it] for it in committed if it in sample.ends}
        if missing := [it for it in committed if it not in ends]:
            ends.update(offsets_at(client, missing, LATEST))
        sample.lags[group.group_id] = sum(max(end - committed[it], 0) for it, end in ends.items())


def _sums(text: str, node_id: int | None = None) -> dict[str, float]:
    """The metrics that are shown, summed over their labels; those of one node if the page is for several."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        matched = _SAMPLE.fullmatch(line)
        if matched is None or (name := _WANTED.get(matched[1])) is None:
            continue
        said = _NODE.search(matched[2] or "")
        if node_id is None or (said is not None and int(said[1]) == node_id):
            found[name] = found.get(name, 0.0) + float(matched[3])
    return found
