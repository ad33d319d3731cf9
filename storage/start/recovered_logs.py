"""What a recovery finds out about each partition: its checkpointed state, and what the blocks after it say."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from ottla.kproto.records import iter_batches
from ottla.storage.config import LogConfig
from ottla.storage.format.block import Run, RunKind, split_key
from ottla.storage.format.block_scan import BlockHead
from ottla.storage.format.checkpoint import PartitionState, as_of_sequence
from ottla.storage.log.partition_log import PartitionLog

__all__ = ["NewLog", "RecoveredLogs"]

logger = logging.getLogger(__name__)

_NEVER = -1
_UNKNOWN = -2
# So short a run holds no batch.
_LOST_RUN_BYTES = 1
# Until `open_log` says which topic a log belongs to.
_UNKNOWN_CONFIG = LogConfig()

NewLog = Callable[[UUID, str, int, LogConfig], PartitionLog]
"""Makes the log of a partition (topic id, topic, partition, settings) of the store that is recovered."""


class RecoveredLogs:
    """The logs of a store that is being recovered, block after block.

    `logs` are those of which something was found after the recovery point, `changed` those of them whose checkpointed
    state is old. `stale` holds those whose producers must be read from their batches, `lost` those of them whose end
    must be found first, and `cut` those whose size is not known, as a part was taken away.
    """

    def __init__(self, new_log: NewLog, snapshots: dict[bytes, bytes]) -> None:
        self._new_log = new_log
        self._as_of: dict[bytes, int] = {}
        self._newest_state = _UNKNOWN
        self._misses_blocks = False
        # Those of which a run was found behind the last missing blocks: gaps that follow are their own.
        self._found_behind: set[bytes] = set()
        self.snapshots = snapshots
        self.logs: dict[bytes, PartitionLog] = {}
        self.changed: dict[PartitionLog, None] = {}
        self.stale: dict[PartitionLog, None] = {}
        self.lost: dict[PartitionLog, None] = {}
        self.cut: dict[PartitionLog, None] = {}

    def apply(self, head: BlockHead, run: Run, body: bytes) -> None:
        """Let a run's log take over what it says, unless the log's state knows the block already."""
        log = self._log(run.key)
        if head.header.sequence <= self._as_of[run.key]:
            return
        self.changed[log] = None
        kind = run.kind
        if kind == RunKind.DATA:
            if log.log_end_offset == 0 and run.base_offset > 0:
                # What was before is gone from the files: a store without its checkpoint, after retention.
                log.emptied(run.base_offset)
            self._apply_batches(log, memoryview(body)[run.position - head.position :][: run.length])
        elif kind == RunKind.TRUNCATE:
            self._truncate(log, run.base_offset)
        elif kind == RunKind.LOG_START:
            if run.base_offset == run.last_offset:
                log.emptied(run.base_offset)
            else:
                if log.log_end_offset < run.base_offset:
                    # Its records are gone from the files, too: the log is empty, and goes on here.
                    log.lost_until(run.base_offset, run.leader_epoch)
                log.start_moved(run.base_offset)
                self.cut[log] = None
        elif kind == RunKind.DELETE:
            del self.logs[run.key]
            for logs in (self.changed, self.stale, self.cut):
                logs.pop(log, None)
            self.snapshots.pop(run.key, None)

    def apply_damaged(self, run: Run) -> None:
        """A data run is there, and not all of its batches can be read: its log goes on after it."""
        log = self._log(run.key)
        log.lost_until(run.last_offset + 1, run.leader_epoch)
        self.changed[log] = self.cut[log] = self.stale[log] = None

    def know_of_block(self, sequence: int) -> bool:
        """Whether a checkpointed state is that after a block which is not replayed yet."""
        if self._newest_state == _UNKNOWN:
            self._newest_state = max(map(as_of_sequence, self.snapshots.values()), default=_NEVER)
        return self._newest_state >= sequence

    def miss_blocks(self) -> None:
        """Blocks are missing before the one that is applied next: `missed_before` tells what of each log."""
        self._misses_blocks = True
        self._found_behind.clear()

    def missed_before(self, run: Run) -> Run | None:
        """What missing blocks must have said before a run: the offsets that they held, or a truncation.

        Offsets that are lost become a run too short for a batch: readers come upon it in its place, and are refused.
        """
        if not self._misses_blocks or run.key in self._found_behind:
            return None
        self._found_behind.add(run.key)
        if run.kind == RunKind.DELETE:
            return None
        if run.kind == RunKind.LOG_START and run.base_offset == run.last_offset:
            return None
        log = self._log(run.key)
        end = log.log_end_offset
        if end < run.base_offset and (end > 0 or self.snapshots):
            self.changed[log] = self.cut[log] = None
            log.lost_until(run.base_offset, -1)
            return Run(run.key, -1, end, run.base_offset - 1, -1, run.position, _LOST_RUN_BYTES, RunKind.DATA)
        if run.base_offset < end and run.kind == RunKind.DATA:
            self.changed[log] = None
            self._truncate(log, run.base_offset)
            return Run(run.key, run.leader_epoch, run.base_offset, -1, -1, 0, 0, RunKind.TRUNCATE)
        return None

    def _truncate(self, log: PartitionLog, offset: int) -> None:
        log.truncated(offset)
        self.cut[log] = None
        if log.knows_producers_until(offset):
            log.truncate_producers(offset)
        else:
            self.stale[log] = None

    def _apply_batches(self, log: PartitionLog, piece: memoryview) -> None:
        for pos, header in iter_batches(piece):
            if log not in self.stale:
                log.replay(piece[pos : pos + header.size_bytes], header)
            log.recovered(header)

    def distrust_states_from(self, first_missing: int) -> int:
        """A state that knows more than the blocks which were found cannot be believed.

        Returns the sequence for the next block, beyond all that were ever used.
        """
        next_sequence = first_missing
        for key, state in self.snapshots.items():
            as_of = as_of_sequence(state)
            if as_of >= first_missing:
                log = self._log(key)
                logger.error("%s: blocks are missing that its checkpoint knows of", log)
                self.lost[log] = None
                self.stale[log] = None
                next_sequence = max(next_sequence, as_of + 1)
        return next_sequence

    def distrust_all(self) -> None:
        """Nobody knows which blocks are missing: the end of every log is looked for in what is there."""
        for key in self.snapshots:
            log = self._log(key)
            self.lost[log] = None
            self.stale[log] = None

    def bounds(self) -> dict[bytes, tuple[int, int]]:
        """The start and end offsets of every log that is known."""
        found = {}
        for key, state in self.snapshots.items():
            known = PartitionState.parse(state)
            found[key] = known.log_start_offset, known.log_end_offset
        for key, log in self.logs.items():
            found[key] = log.log_start_offset, log.log_end_offset
        return found

    def _log(self, key: bytes) -> PartitionLog:
        log = self.logs.get(key)
        if log is None:
            topic_id, partition = split_key(key)
            log = self.logs[key] = self._new_log(UUID(bytes=topic_id), "", partition, _UNKNOWN_CONFIG)
            state = self.snapshots.get(key)
            self._as_of[key] = as_of_sequence(state) if state is not None else _NEVER
            if state is not None and not log.load_state(state):
                logger.warning(
                    "%s: the state of its producers is rebuilt from its batches", log, extra={"partition": partition}
                )
                self.stale[log] = None
        return log
