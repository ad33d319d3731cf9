"""All that the simulation knows of the storage engine's modules and insides: what changes there changes only this."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock
from uuid import UUID

import ottla.storage.store.file_store
from ottla.simulation.harness.threads import Divided
from ottla.storage.clock import ManualClock
from ottla.storage.config import INT64_MAX, LogConfig, StorageConfig, StoreLayout
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.memory_disk import MemoryDisk
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import (
    CorruptLogError,
    LogClosedError,
    OffsetOutOfRangeError,
    StorageError,
    StoreOfflineError,
)
from ottla.storage.inspect.fsck import check_node, store_directories
from ottla.storage.inspect.store_view import view_store
from ottla.storage.log.append_types import AppendInfo, AppendOrigin
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.memory.iobuf import Fragment
from ottla.storage.reading.plan import ReadPlan, read
from ottla.storage.state.aborted_transactions import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "INT64_MAX",
    "AbortedTransaction",
    "AppendInfo",
    "AppendOrigin",
    "CorruptLogError",
    "Fault",
    "FaultKind",
    "Fragment",
    "LogClosedError",
    "LogConfig",
    "LogManager",
    "ManualClock",
    "MemoryDisk",
    "OffsetOutOfRangeError",
    "PartitionLog",
    "ReadPlan",
    "SimulatedDisk",
    "StorageConfig",
    "StorageError",
    "StoreLayout",
    "StoreOfflineError",
    "check_node",
    "cleaned_end",
    "forget_tails",
    "partitions_on_disk",
    "read",
    "repeatable",
    "store_name",
    "what_is_held",
]


@contextmanager
def repeatable(new_lock: Callable[[], Any]) -> Iterator[None]:
    """Replace, in this thread, what would make two runs of a seed differ: locks that threads really wait for."""
    simulated = Divided(SimpleNamespace(Lock=new_lock), threading)
    with mock.patch.object(ottla.storage.store.file_store, "threading", simulated):
        yield


def cleaned_end(log: PartitionLog) -> int:
    """Up to where a compaction pass has finished: of the records before that, it has left each key's last."""
    return log.first_dirty_offset


def forget_tails(manager: LogManager) -> None:
    """Let go of all blocks in memory, as if others needed the room."""
    manager.context.tail.clear()


def store_name(config: StorageConfig, topic_id: UUID, partition: int) -> str:
    """Which logs share a store, and with it one order of what is written."""
    if config.store_layout is StoreLayout.SHARED:
        return "shared"
    return f"{topic_id}/{partition // config.partitions_per_store}"


def what_is_held(manager: LogManager) -> dict[str, int]:
    """What must be zero when all logs are deleted, by name."""
    context, reader = manager.context, manager.reader
    pinned = [segment for store in manager.stores() for segment in store.files.segments if segment._pins]
    tasks = context._nursery.child_tasks if context._nursery is not None else ()
    return {
        "stores": len(list(manager.stores())),
        "logs": len(list(manager.logs())),
        "pinned segments": len(pinned),
        "cached descriptors": len(context.fd_cache),
        "blocks in the tail cache": len(context.tail),
        "bytes in the tail cache": context.tail.size_bytes,
        "ranges read ahead": len(reader.prefetch),
        "logs that are followed": len(reader.read_ahead),
        "descriptors to write by": len(context.writers._files),
        "stores that wait for maintenance": len(manager.maintenance._waiting),
        "pooled fragments": context.pool.counters.in_use,
        # One is the cleaner's, one watches for room on the disk, one ends turns.
        "background tasks": max(0, len(tasks) - 3),
    }


def partitions_on_disk(disk: SimulatedDisk, node_path: str) -> Iterator[tuple[str, UUID, int]]:
    """(store's folder, topic id, partition) of all that a stopped node's files hold records of."""
    for directory in store_directories(disk, node_path):
        views: Sequence[Any] = ()
        with suppress(FileNotFoundError):
            views = view_store(disk, directory)
        for view in views:
            if view.log_end_offset > view.log_start_offset:
                yield directory, UUID(bytes=view.topic_id), view.partition
