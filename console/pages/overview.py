"""The first page: what this node is, how it is doing, and who else is in the cluster."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console import charts, history
from ottla.console.groups import list_groups
from ottla.console.nodes import ask_each, other_nodes
from ottla.kproto.messages.data.describe_log_dirs import DescribeLogDirsRequest
from ottla.metadata.acls import AclOperation, AclResource
from ottla.runtime.time_slice import TimeSlice
from ottla.server.apis.data.describe_log_dirs import disk_space, log_dir
from ottla.server.telemetry.readiness import unready_reasons

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.console.visitors import Visitor
    from ottla.metadata.image import BrokerImage
    from ottla.server.broker import Broker

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_LOADED_AT: Final = time()


async def show(console: Console, request: Request) -> Response:
    broker = console.broker
    image = broker.metadata
    kept = console.history
    watchdog = broker.watchdog
    sees_all = console.visitor(request).may_on_cluster(AclOperation.DESCRIBE)
    counts = await _partition_counts(broker)
    disks, problems = await _disks(broker) if sees_all else ({}, [])
    return await console.page(
        request,
        "overview.html",
        section="overview",
        image=image,
        node_id=broker.node_id,
        python=platform.python_version(),
        uptime_seconds=uptime_seconds(),
        memory_bytes=resident_bytes(),
        connections=broker.listeners.connection_count if broker.listeners is not None else 0,
        topics=await _topic_count(broker, console.visitor(request)),
        partition_count=counts[broker.node_id].replicas,
        group_count=await _group_count(broker, console.visitor(request)),
        disk_bytes=sum(store.files.size_bytes for store in broker.log_manager.stores()),
        brokers=[
            BrokerRow(each, counts[each.node_id], disks.get(each.node_id))
            for each in sorted(image.brokers.values(), key=lambda each: each.node_id)
        ],
        problems=problems,
        reasons=unready_reasons(broker) if sees_all else (),
        curves=[
            ("In", kept.bytes_in.last, charts.sparkline(kept.bytes_in.values, history.LENGTH), "size"),
            ("Out", kept.bytes_out.last, charts.sparkline(kept.bytes_out.values, history.LENGTH), "size"),
            ("Requests", kept.requests.last, charts.sparkline(kept.requests.values, history.LENGTH), "rate"),
        ],
        minutes=round(history.LENGTH * history.INTERVAL_SECONDS / 60),
        features=sorted(image.features.items()),
        data_dirs=(broker.config.log_dirs or broker.config.log_dir) if sees_all else (),
        loop_holds=watchdog.holds if watchdog is not None else None,
        longest_hold_ms=watchdog.longest_hold_ms if watchdog is not None else 0.0,
    )


class Counts(NamedTuple):
    """How many partitions a broker leads, and of how many it has a replica."""

    leads: int = 0
    replicas: int = 0


class Disk(NamedTuple):
    """The disk that holds a broker's data."""

    usable_bytes: int
    total_bytes: int


class BrokerRow(NamedTuple):
    """A broker. `disk` is None if it does not answer, or keeps everything in memory."""

    broker: BrokerImage
    counts: Counts
    disk: Disk | None


async def _partition_counts(broker: Broker) -> Mapping[int, Counts]:
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    slices = TimeSlice()
    for topic in broker.metadata.topics.values():
        for partition in topic.partitions:
            leads[partition.leader] += 1
            replicas.update(partition.replicas)
            if slices.is_over:
                await slices.maybe_yield()
    nodes = {broker.node_id, *broker.metadata.brokers}
    return {node_id: Counts(leads[node_id], replicas[node_id]) for node_id in nodes}


async def _disks(broker: Broker) -> tuple[dict[int, Disk], list[str]]:
    """The disks of the brokers that answer, and a sentence for each that does not."""
    request = DescribeLogDirsRequest(topics=[])
    answers = await ask_each(broker, dict.fromkeys(other_nodes(broker), request))
    results = {node_id: answer.results for node_id, answer in answers.by_node.items()}
    disks = {
        node_id: Disk(dirs[0].usable_bytes, dirs[0].total_bytes)
        for node_id, dirs in results.items()
        if dirs and dirs[0].total_bytes >= 0
    }
    total_bytes, usable_bytes = disk_space(log_dir(broker))
    if total_bytes >= 0:
        disks[broker.node_id] = Disk(usable_bytes, total_bytes)
    return disks, answers.problems


class TopicCount(NamedTuple):
    """How many topics a visitor may see, as the list of topics counts them."""

    own: int
    internal: int


async def _topic_count(broker: Broker, visitor: Visitor) -> TopicCount:
    own = internal = 0
    slices = TimeSlice()
    for name, topic in broker.metadata.topics.items():
        if visitor.may_on_topic("DESCRIBE", name):
            internal += topic.is_internal
            own += not topic.is_internal
        if slices.is_over:
            await slices.maybe_yield()
    return TopicCount(own, internal)


async def _group_count(broker: Broker, visitor: Visitor) -> int | None:
    """How many groups of all nodes a visitor may see; None while one of the nodes does not answer."""
    listings = await list_groups(broker)
    if listings.problems:
        return None
    count = 0
    slices = TimeSlice()
    for group_id in listings.groups:
        count += visitor.may(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        if slices.is_over:
            await slices.maybe_yield()
    return count


def resident_bytes() -> int:
    """The memory that this process takes."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        # Not Linux: the most that it has ever taken, which macOS reports in bytes and others in KiB.
        return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def uptime_seconds() -> float:
    """How long ago this process was started."""
    return max(0.0, time() - _started_at())


@cache
def _started_at() -> float:
    """The time at which this process was started, in seconds since 1970."""
    try:
        started = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19]) / _TICKS_PER_SECOND
        booted = next(
            float(line.split()[1]) for line in Path("/proc/stat").read_bytes().splitlines() if line.startswith(b"btime")
        )
    except FileNotFoundError:
        return _LOADED_AT
    return booted + started
