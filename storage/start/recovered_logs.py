"""What a recovery finds out about each partition: its checkpointed state, and what the blocks after it say."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.kproto.records import iter_batches
from ottla.storage.config import LogConfig
from ottla.storage.format.block import Run, RunKind, split_key
from ottla.storage.log.append import replay_producer
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.store.checkpoint import as_of_sequence, load_state

if TYPE_CHECKING:
    from ottla.storage.format.block_scan import BlockHead
    from ottla.storage.store.message_store import MessageStore

__all__ = ["RecoveredLogs", "restore_state"]

logger = logging.getLogger(__name__)

_NEVER = -1
# Until `open_log` says which topic a log belongs to.
_UNKNOWN_CONFIG = LogConfig()


class RecoveredLogs:
    """The logs of a store that is being recovered, block after block.

    Afterwards `stale` holds those whose producers must be read from their batches, `lost` those of them whose end must
    be found first, and `cut` those whose size is not known, as a part was taken away.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.stale: dict[PartitionLog, None] = {}
        self.lost: dict[PartitionLog, None] = {}
        self.cut: dict[PartitionLog, None] = {}
        self._as_of: dict[bytes, int] = {}

    def apply(self, head: BlockHead, run: Run, body: bytes) -> None:
        """Let a run's log take over what it says, unless the log's state knows the block already."""
        log = self._log(run.key)
        if head.header.sequence <= self._as_of[run.key]:
            return
        self._store.dirty[log] = None
        kind = run.kind
        if kind == RunKind.DATA:
            if log.log_end_offset == 0 and run.base_offset > 0:
                # What was before is gone from the files: a store without its checkpoint, after retention.
                log.start_at(run.base_offset)
            self._apply_batches(log, memoryview(body)[run.position - head.position :][: run.length])
        elif kind == RunKind.TRUNCATE:
            log.forget_from(run.base_offset)
            self.cut[log] = None
            if log.producers is not None and not log.producers.truncate_from_end(run.base_offset):
                self.stale[log] = None
        elif kind == RunKind.LOG_START:
            if run.base_offset == run.last_offset:
                log.start_at(run.base_offset)
            else:
                log.log_end_offset = max(log.log_end_offset, run.base_offset)
                log.move_log_start(run.base_offset)
                self.cut[log] = None
        elif kind == RunKind.DELETE:
            del self._store.logs[run.key]
            self._store.dirty.pop(log, None)
            self.stale.pop(log, None)
            self.cut.pop(log, None)
            self._store.snapshots.pop(run.key, None)

    def _apply_batches(self, log: PartitionLog, piece: memoryview) -> None:
        for pos, header in iter_batches(piece):
            if header.leader_epoch >= 0:
                log.epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0 and log not in self.stale:
                replay_producer(log, piece[pos : pos + header.size_bytes], header)
            log.log_end_offset = header.next_offset
        log.size_bytes += len(piece)
        log.flushed_end_offset = log.high_watermark = log.log_end_offset

    def distrust_states_from(self, first_missing: int) -> int:
        """A state that knows more than the blocks which were found cannot be believed.

        Returns the sequence for the next block, beyond all that were ever used.
        """
        next_sequence = first_missing
        for key, state in self._store.snapshots.items():
            as_of = as_of_sequence(state)
            if as_of >= first_missing:
                log = self._log(key)
                logger.error("%s: blocks are missing that its checkpoint knows of", log)
                self.lost[log] = None
                self.stale[log] = None
                next_sequence = max(next_sequence, as_of + 1)
        return next_sequence

    def _log(self, key: bytes) -> PartitionLog:
        log = self._store.logs.get(key)
        if log is None:
            topic_id, partition = split_key(key)
            log = PartitionLog(self._store, UUID(bytes=topic_id), "", partition, _UNKNOWN_CONFIG)
            self._store.logs[key] = log
            self._as_of[key] = restore_state(log)
        return log


def restore_state(log: PartitionLog) -> int:
    """Load a log's checkpointed state, if there is one; returns the block up to which it is true."""
    state = log.store.snapshots.get(log.key)
    return load_state(log, state) if state is not None else _NEVER
