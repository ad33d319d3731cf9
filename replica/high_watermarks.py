"""What was committed, as it was known last (Kafka's replication-offset-checkpoint), and in which leader epoch.

A replica that starts does not know how much of its log is committed before its leader, or its followers, say so. From
this file it knows most of it at once: consumers do not see the high watermark go back when all nodes start again. It
may be behind by `replica.high.watermark.checkpoint.interval.ms`, or missing: then less is shown at first.

The epochs tell that metadata is older than this node's folder, also where nothing was written in them.

It says nothing after a loss of power. The disk may have lost that a log was cut, and what was written after that: then
the log has again what its leader does not know, below an offset up to which all was committed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import trio

from ottla.runtime.time_slice import TimeSlice
from ottla.storage.state.leader_epochs import NO_EPOCH

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.storage.disk import Disk
    from ottla.storage.worker_threads import WorkerThreads

logger = logging.getLogger(__name__)

FILE: Final = "high-watermarks.json"

_Noted = tuple[int, int]
"""A high watermark, and the leader epoch in which it was known."""
_NOTHING: Final[_Noted] = (0, NO_EPOCH)

#: The interpreter belongs to the one call that encodes them: other threads wait for it.
_ENCODED_BY_ONE_CALL: Final = 500


class HighWatermarks:
    """The file in a node's folder. `load` comes first; `run` keeps it up to date until it is cancelled."""

    def __init__(self, disk: Disk, folder: str, threads: WorkerThreads) -> None:
        self._disk = disk
        self._path = os.path.join(folder, FILE)
        self._threads = threads
        self._written: dict[str, _Noted] = {}
        self._is_forgotten = False
        self._is_failing = False

    def of(self, topic_id: UUID, partition: int) -> int:
        """A partition's high watermark when the file was written last, 0 if it was not in it."""
        return self._noted(topic_id, partition)[0]

    def epoch_of(self, topic_id: UUID, partition: int) -> int:
        """A partition's leader epoch when the file was written last, NO_EPOCH if it was not in it."""
        return self._noted(topic_id, partition)[1]

    def _noted(self, topic_id: UUID, partition: int) -> _Noted:
        return self._written.get(f"{topic_id}-{partition}", _NOTHING)

    def was_alone(self, topic_id: UUID, partition: int) -> bool:
        """Whether the partition was, as far as is known, this node's alone: then all that its log had was committed.

        False after a loss of power, of which nothing is known.
        """
        return not self._is_forgotten and f"{topic_id}-{partition}" not in self._written

    async def load(self) -> None:
        """Read the file. One that cannot be read is as good as none."""
        try:
            self._written = await self._threads.offload(self._read)
        except (OSError, ValueError) as error:
            keys = {"path": self._path, "error": str(error)}
            logger.warning(
                "%s cannot be read: high watermarks start where the logs start: %s", self._path, error, extra=keys
            )

    async def forget(self) -> None:
        """Know nothing, here and at the next start: what the logs hold may be what was cut off them. Raises OSError."""
        await self._threads.offload(self._remove)
        self._written = {}
        self._is_forgotten = True

    async def run(
        self,
        partitions: Callable[[], Iterable[Partition]],
        offline: Callable[[], Iterable[tuple[UUID, int]]],
        interval_ms: int,
    ) -> None:
        """Write what has changed every `interval_ms`, and once more in the end; until cancelled.

        What was known of partitions that should be here, and could not be opened, is kept.
        """
        try:
            while True:
                await trio.sleep(interval_ms / 1000)
                await self._write(partitions(), offline())
        finally:
            with trio.CancelScope(shield=True):
                await self._write(partitions(), offline())

    async def _write(self, partitions: Iterable[Partition], offline: Iterable[tuple[UUID, int]]) -> None:
        found: dict[str, _Noted] = {}
        has_changed = False
        time_slice = TimeSlice()
        for topic_id, index in list(offline):
            await time_slice.maybe_yield()
            key = f"{topic_id}-{index}"
            if key in self._written:
                found[key] = self._written[key]
        last_id, prefix = None, ""
        for partition in partitions:
            if time_slice.is_over:
                await time_slice.maybe_yield()
            if len(partition.replicas) < 2:
                continue
            if partition.topic_id is not last_id:
                last_id, prefix = partition.topic_id, f"{partition.topic_id}-"
            key = f"{prefix}{partition.index}"
            found[key] = (partition.log.high_watermark, partition.leader_epoch)
            has_changed = has_changed or self._written.get(key) != found[key]
        if not has_changed and len(found) == len(self._written):
            return
        try:
            await self._threads.offload(self._store, found)
        except OSError as error:
            if not self._is_failing:
                keys = {"path": self._path, "error": str(error)}
                logger.warning("%s cannot be written: %s", self._path, error, extra=keys)
            self._is_failing = True
        else:
            self._written, self._is_failing = found, False

    def _read(self) -> dict[str, _Noted]:
        if not self._disk.exists(self._path):
            return {}
        content: Any = json.loads(self._disk.read_file(self._path))
        if isinstance(content, dict):
            return {key: _parsed(value) for key, value in content.items()}
        raise ValueError("it is not a table of offsets")

    def _remove(self) -> None:
        if self._disk.exists(self._path):
            self._disk.unlink(self._path)

    def _store(self, found: dict[str, _Noted]) -> None:
        self._disk.write_file_atomic(self._path, *_pieces(found))


def _parsed(value: Any) -> _Noted:
    """An offset alone is of a release that noted no epochs."""
    offset, epoch = value if isinstance(value, list) and len(value) == 2 else (value, NO_EPOCH)
    if type(offset) is not int or offset < 0 or type(epoch) is not int:
        raise ValueError("it is not a table of offsets")
    return offset, epoch


def _pieces(found: dict[str, _Noted]) -> Iterator[bytes]:
    """The file's content. The event loop has its turn between them, which it has not while one piece is encoded."""
    items = iter(found.items())
    before = b"{"
    while some := dict(islice(items, _ENCODED_BY_ONE_CALL)):
        yield before + json.dumps(some)[1:-1].encode()
        before = b", "
    yield b"}" if found else b"{}"
