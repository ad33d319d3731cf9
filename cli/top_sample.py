"""What `ottla top` looks at: two samples of a cluster make rates.

All comes by requests that any Kafka broker answers, but for memory and connections, and what the filters of a proxy do:
those come from /metrics.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.cli import CommandError
from ottla.client.client import Client
from ottla.client.group_state import Coordinator, committed_offsets
from ottla.client.offsets import LATEST, TopicPartition, offsets_at
from ottla.kproto.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.kproto.messages.list_groups import ListGroupsRequest

MOST_GROUPS: Final = 100
_METRICS_TIMEOUT_SECONDS: Final = 5
_SAMPLE: Final = re.compile(r"(\w+)(?:\{[^}]*\})? (\S+)")
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
class Sample:
    """A cluster at one time. `ends` has the end of every partition, `lags` each group's lag over all its partitions."""

    seconds: float
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    lags: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    filters: dict[str, dict[str, float]] = field(default_factory=dict)
    """By a filter's name, what a proxy counts of it: calls, seconds, refusals."""


def take(client: Client, timeout_seconds: float, metrics_url: str | None, *, internal: bool) -> Sample:
    topics = [topic for topic in client.metadata(None).topics if internal or not topic.is_internal]
    partitions = [
        TopicPartition(topic.name or "", state.partition_index) for topic in topics for state in topic.partitions
    ]
    sample = Sample(time.monotonic())
    sample.ends = dict(offsets_at(client, partitions, LATEST))
    sample.sizes = _sizes(client)
    _add_groups(client, timeout_seconds, sample)
    if metrics_url is not None:
        text = _metrics(metrics_url)
        sample.metrics = _sums(text)
        for what, name, value in _OF_FILTER.findall(text):
            sample.filters.setdefault(name, {})[what] = float(value)
    return sample


def _sizes(client: Client) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for broker in client.metadata([]).brokers:
        for folder in client.broker(broker.node_id).call(DescribeLogDirsRequest(topics=None)).results:
            for topic in folder.topics:
                sizes[topic.name] = sizes.get(topic.name, 0) + sum(it.partition_size for it in topic.partitions)
    return sizes


def _add_groups(client: Client, timeout_seconds: float, sample: Sample) -> None:
    groups: list[Any] = []
    for broker in client.metadata([]).brokers:
        groups += client.broker(broker.node_id).call(ListGroupsRequest()).groups
    coordinator = Coordinator(client, timeout_seconds)
    for group in sorted(groups, key=lambda it: it.group_id)[:MOST_GROUPS]:
        committed = committed_offsets(coordinator, group.group_id)
        ends = {it: sample.ends[it] for it in committed if it in sample.ends}
        if missing := [it for it in committed if it not in ends]:
            ends.update(offsets_at(client, missing, LATEST))
        sample.lags[group.group_id] = sum(max(end - committed[it], 0) for it, end in ends.items())
        sample.states[group.group_id] = group.group_state


def _metrics(url: str) -> str:
    address = url if "://" in url else f"http://{url}"
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/metrics", timeout=_METRICS_TIMEOUT_SECONDS) as answer:
            return str(answer.read(), "utf-8")
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise CommandError(f"{address} gives no metrics ({error}): is `ottla serve --http` there?") from None


def _sums(text: str) -> dict[str, float]:
    """The metrics that are shown, over all their labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        matched = _SAMPLE.fullmatch(line)
        if matched is not None and (name := _WANTED.get(matched[1])) is not None:
            found[name] = found.get(name, 0.0) + float(matched[2])
    return found
