"""All logs of a node: the data folder, its stores, and the tasks that write, retain and clean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from ottla.storage.config import LogConfig, StorageConfig

if TYPE_CHECKING:
    from ottla.storage.clock import Clock
    from ottla.storage.disk import Disk
    from ottla.storage.partition_log import PartitionLog

__all__ = ["LogManager", "StorageListener"]


class StorageListener(Protocol):
    """Who learns of durability. Called synchronously on the event loop: it must not wait nor raise."""

    def on_flushed(self, logs: Sequence[PartitionLog]) -> None:
        """`flushed_end_offset` (or the log start offset) of these logs has moved."""

    def on_offline(self, logs: Sequence[PartitionLog], error: Exception) -> None:
        """The store of these logs has stopped for good: nothing more will be flushed or acknowledged."""


class LogManager:
    """Opens `<data_dir>/node-<id>/`, locks it, and owns every log in it.

    Usage: `manager = LogManager(...); async with manager.run(): log = manager.open_log(...)`. Entering `run`
    raises DataDirLockedError or UnsupportedFormatError; leaving it writes, syncs and checkpoints everything.
    """

    def __init__(
        self,
        disk: Disk,
        data_dir: str | Path,
        config: StorageConfig,
        clock: Clock,
        *,
        node_id: int = 0,
        listener: StorageListener | None = None,
    ) -> None: ...

    def set_listener(self, listener: StorageListener) -> None:
        """Register the one listener (before the first append)."""

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Lock the folder, recover, own the background tasks; on leaving: flush, sync, checkpoint, unlock."""
        yield

    async def open_log(self, topic_id: UUID, topic: str, partition: int, config: LogConfig) -> PartitionLog:
        """Create the log or open what is there; the same object for the same partition each time."""

    def get_log(self, topic_id: UUID, partition: int) -> PartitionLog | None:
        """The log if it is open."""

    def logs(self) -> Iterable[PartitionLog]:
        """All open logs."""

    async def delete_log(self, topic_id: UUID, partition: int) -> None:
        """Delete a partition's log; the space comes back at once for a whole store, else by rewriting."""

    async def flush_all(self) -> None:
        """Write and sync all that was appended up to now."""
