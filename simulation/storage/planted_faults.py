"""Faults that are planted in the storage engine: `ottla simulate storage --planted`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ottla.simulation.harness.planted import PlantedFault
from ottla.storage import log_manager
from ottla.storage.disk.fd_cache import FdCache
from ottla.storage.format.block import RunKind
from ottla.storage.log.appendable import AppendableLog
from ottla.storage.log.log_state import LogState
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.memory.iobuf import Fragment
from ottla.storage.reading.prefetch import Prefetch
from ottla.storage.start import recovery
from ottla.storage.state.aborted_transactions import AbortedTransaction
from ottla.storage.store import maintenance
from ottla.storage.store.block_writer import BlockWriter
from ottla.storage.store.file_store import FileStore
from ottla.storage.store.flush_timer import FlushTimer
from ottla.storage.store.gate import Gate, Life
from ottla.storage.store.maintenance import Maintenance
from ottla.storage.store.memstore import RunGroup
from ottla.storage.store.message_store import MessageStore

__all__ = ["FAULTS"]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _evict_in_use(self: Any, limit: int) -> None:
    while len(self._descriptors) > limit:
        _, descriptor = self._descriptors.popitem(last=False)
        self._disk.close(descriptor.handle)


async def _flush_without_sync(self: Any, *, sync: bool) -> None:
    await _flush(self, sync=False)


def _acknowledge_early(self: Any, *arguments: Any, **options: Any) -> None:
    _add_batch(self, *arguments, **options)
    arguments[0].flushed_end_offset = arguments[4]


# What guards the life of a store (`ottla.storage.store.gate`), taken out.


async def _shut_at_once(self: Any) -> None:
    self.life = Life.CLOSING


def _closed_with_some_inside(self: Any) -> None:
    self.life = Life.CLOSED


async def _delete_without_flush(store: MessageStore, logs: Sequence[PartitionLog]) -> None:
    for log in logs:
        store.files.truncate_tables(log.key, 0)
        log.emptied(0)
        store.writer.add_note(log, RunKind.DELETE, -1, 0)
    await store.writer.flush(sync=False)
    for log in logs:
        store.forget_log(log)


def _clean_and_leave_the_tail(
    self: Any, end_offset: int, first_dirty_offset: int, aborted: Iterable[AbortedTransaction]
) -> None:
    AppendableLog.cleaned(self, end_offset, first_dirty_offset, aborted)
    self._reader.forget(self)
    self.store.changed(self)


def _start_although_closed(self: Any) -> None:
    if not self._is_running:
        self._files.gate._inside += 1
        self._files.use(is_in_use=True)
        self._is_running = True
        self._context.spawn(self._run)


async def _maintain_although_closed(store: MessageStore, *, makes_room: bool = False) -> None:
    async with store.lock:
        await maintenance._seal_and_checkpoint(store, makes_room=makes_room)


@contextmanager
def _outside(self: Any) -> Iterator[None]:
    del self
    yield


_IS_WITHOUT_LIFE: Final = (MessageStore, "is_usable", property(lambda self: self.error is None))
_flush: Final[Callable[..., Any]] = BlockWriter.flush
_add_batch: Final[Callable[..., Any]] = BlockWriter.add_batch

FAULTS: Final[tuple[PlantedFault, ...]] = (
    PlantedFault(
        "read_committed readers see up to the high watermark",
        ((LogState, "last_stable_offset", property(lambda self: self.high_watermark)),),
        r"last stable offset|undecided records are visible",
    ),
    PlantedFault(
        "aborted transactions are not named",
        ((PartitionLog, "aborted_transactions", lambda self, offset, end_offset: ()),),
        r"aborted records are visible|committed is False, named as aborted is False",
    ),
    PlantedFault(
        "memory is given back while it is needed",
        ((Fragment, "retain", lambda self: self),),
        r"released more often|damaged|never were|another log's",
    ),
    PlantedFault(
        "a flush does not sync",
        ((BlockWriter, "flush", _flush_without_sync),),
        r"nothing from \d+ of \d+ on fits",
    ),
    PlantedFault(
        "a sync does nothing",
        ((FileStore, "_fdatasync", _nothing),),
        r"nothing from \d+ of \d+ on fits|damaged near offset",
    ),
    PlantedFault(
        "a recovery believes what it reads",
        ((recovery, "unsound_runs", lambda head, body, *, verify: []),),
        r"nothing from \d+ of \d+ on fits|never were|damaged",
        is_slow=True,
    ),
    PlantedFault(
        "acknowledged before it is written",
        ((BlockWriter, "add_batch", _acknowledge_early),),
        r"nothing was read of",
    ),
    PlantedFault(
        "a truncation leaves the tail in memory",
        ((RunGroup, "truncate", _nothing),),
        r"never were there|found \[|expected",
    ),
    PlantedFault(
        "what was read ahead outlives a truncation",
        ((Prefetch, "forget", _nothing),),
        r"never were there|found \[|expected|another log's|still ranges read ahead",
        is_slow=True,
    ),
    PlantedFault(
        "a descriptor is closed under its reader",
        ((FdCache, "_evict", _evict_in_use),),
        r"met another file|Bad file descriptor|damaged",
    ),
    PlantedFault(
        "a store is closed under the block that is being written",
        (
            (Gate, "shut", _shut_at_once),
            (Gate, "closed", _closed_with_some_inside),
            (BlockWriter, "release", _nothing),
        ),
        r"met another file|Bad file descriptor|damaged|another log's|offline",
    ),
    PlantedFault(
        "partitions are deleted under the block that is being written",
        ((log_manager, "_delete_from", _delete_without_flush),),
        r"damaged|a new log is|holds records of|another log's|the process ended: AssertionError",
    ),
    PlantedFault(
        "compaction leaves the tail in memory as it was",
        ((PartitionLog, "cleaned", _clean_and_leave_the_tail),),
        r"aborted records are visible|what compaction has removed is still visible",
    ),
    PlantedFault(
        "a deleted topic's flush timer rings",
        (
            (FlushTimer, "close", _nothing),
            (BlockWriter, "stop", _nothing),
            (BlockWriter, "start", _start_although_closed),
        ),
        r"offline|are still|the process ended",
    ),
    PlantedFault(
        "a deleted topic is sealed and checkpointed",
        (
            (Maintenance, "forget", _nothing),
            (maintenance, "maintain", _maintain_although_closed),
            _IS_WITHOUT_LIFE,
        ),
        r"offline|are still|the process ended",
    ),
    PlantedFault(
        "a deleted topic is cleaned",
        ((Gate, "interruptible", _outside), _IS_WITHOUT_LIFE),
        r"offline|are still|the process ended|ERROR",
    ),
)
