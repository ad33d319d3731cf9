"""The first page: what this node is, how it does, and who else is in the cluster."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import time
from typing import TYPE_CHECKING, Final

from ottla.console import charts, history
from ottla.console.rendering import Slices
from ottla.server.coordinator.errors import CoordinatorError
from ottla.server.metadata.acls import AclOperation
from ottla.server.telemetry.readiness import unready_reasons

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
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
        topic_count=len(image.topics),
        partition_count=await _partition_count(broker),
        group_count=_group_count(broker),
        disk_bytes=sum(store.files.size_bytes for store in broker.log_manager.stores()),
        brokers=sorted(image.brokers.values(), key=lambda each: each.node_id),
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


async def _partition_count(broker: Broker) -> int:
    image, node_id = broker.metadata, broker.node_id
    slices = Slices()
    count = 0
    for topic in image.topics.values():
        count += sum(node_id in partition.replicas for partition in topic.partitions)
        if slices.over:
            await slices.rest()
    return count


def _group_count(broker: Broker) -> int | None:
    try:
        return len(broker.group_coordinator.list_groups())
    except CoordinatorError:
        return None


def resident_bytes() -> int:
    """The memory that this process takes."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except FileNotFoundError:
        # No Linux: the most that it has taken, which macOS tells in bytes and others in KiB.
        return getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def uptime_seconds() -> float:
    """How long ago this process was started."""
    return max(0.0, time() - _started_at())


@cache
def _started_at() -> float:
    """When this process was started, in seconds since 1970."""
    try:
        started = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19]) / _TICKS_PER_SECOND
        booted = next(
            float(line.split()[1]) for line in Path("/proc/stat").read_bytes().splitlines() if line.startswith(b"btime")
        )
    except FileNotFoundError:
        return _LOADED_AT
    return booted + started
