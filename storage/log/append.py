"""Appending to a log: a leader's one batch, a follower's many.

Nothing is changed before everything has been checked, and nothing waits: an append either raises or is in the memstore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.kproto.records import (
    BatchHeader,
    EndTxnMarker,
    parse_batch_header,
    parse_end_txn_marker,
    patch_base_offset_and_epoch,
    patch_log_append_time,
)
from ottla.storage.config import TimestampType
from ottla.storage.errors import CorruptBatchError, UnexpectedAppendOffsetError
from ottla.storage.log.append_checks import check_and_recompress, check_follower_batch, check_leader_batch
from ottla.storage.log.append_types import AppendInfo, AppendOrigin, CheckedBatch
from ottla.storage.state.aborted_transactions import AbortedTransactions
from ottla.storage.state.producer_state import (
    AppendPlan,
    CompletedTransaction,
    DuplicateBatch,
    ProducerStateManager,
    VerificationGuard,
)

if TYPE_CHECKING:
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.memory.iobuf import Fragment

__all__ = ["append_as_follower", "append_as_leader", "replay_producer"]


def append_as_leader(
    log: PartitionLog,
    records: memoryview,
    fragment: Fragment | None,
    *,
    leader_epoch: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    now_ms: int,
    transaction_version: int = 0,
    require_verification: bool = False,
    guard: VerificationGuard | None = None,
    checked: CheckedBatch | None = None,
) -> AppendInfo:
    """Append one batch: check it, assign its offsets in place, hand the view to the active memstore.

    `fragment` is retained as long as the bytes are needed; without one the caller leaves the memory alone. Raises
    an append error of `ottla.storage.errors`, and then nothing has changed. The acknowledgement waits for
    `flushed_end_offset` > `last_offset`. `checked` is what `check_ahead` said of the same records, if it was asked;
    the three arguments before are those of `ProducerStateManager.check`.
    """
    store = log.store
    if log.is_closed or store.error is not None or store.checkpoint is not None:
        log.check_open()
    from_client = origin is AppendOrigin.CLIENT
    config = log.config
    if checked is not None and checked.config is config:
        header = checked.header
    elif log.checks_records:
        checked = check_and_recompress(records, config, now_ms, from_client=from_client)
        header = checked.header
    else:
        checked = None
        header = check_leader_batch(records, config, now_ms, from_client=from_client, checks_all=False)
    if checked is not None and checked.recompressed is not None:
        records, fragment = checked.recompressed, None
    plan: AppendPlan | None = None
    if header.producer_id >= 0:
        marker = _marker(records, header)
        producers = log.producers
        if producers is None:
            producers = ProducerStateManager()
            producers.end_offset = log.log_end_offset
        decision = producers.check(
            header,
            marker,
            from_client=from_client,
            transaction_version=transaction_version,
            require_verification=require_verification,
            guard=guard,
        )
        if isinstance(decision, DuplicateBatch):
            return _duplicate(log, decision)
        plan = decision
        log.producers = producers
    stamped = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    if records.readonly:
        records, fragment = memoryview(bytearray(records)), None
    if stamped:
        patch_log_append_time(records, 0, now_ms)
        header = parse_batch_header(records)
    base_offset = log.log_end_offset
    patch_base_offset_and_epoch(records, 0, base_offset, leader_epoch)
    if plan is not None:
        _apply_plan(log, plan, base_offset, now_ms if stamped else None)
    last_offset = _take(log, header, records, fragment, base_offset, leader_epoch)
    return AppendInfo(base_offset, last_offset, now_ms if stamped else -1, log.log_start_offset)


def append_as_follower(log: PartitionLog, records: memoryview, fragment: Fragment | None, *, now_ms: int) -> AppendInfo:
    """Append whole batches as the leader numbered them; a cut off last batch is left out.

    Offsets may have gaps (compaction) but never go back: UnexpectedAppendOffsetError. CorruptBatchError if a batch
    is unsound. In both cases nothing was appended.
    """
    log.check_open()
    batches: list[tuple[int, BatchHeader]] = []
    pos, expected = 0, log.log_end_offset
    while _is_whole(records, pos):
        header = check_follower_batch(records, pos)
        if header.base_offset < expected:
            raise UnexpectedAppendOffsetError(header.base_offset, expected)
        expected = header.next_offset
        batches.append((pos, header))
        pos += header.size_bytes
    if not batches:
        raise CorruptBatchError("a follower's append without a whole batch")
    for pos, header in batches:
        view = records[pos : pos + header.size_bytes]
        replay_producer(log, view, header)
        _take(log, header, view, fragment, header.base_offset, header.leader_epoch)
    return AppendInfo(batches[0][1].base_offset, log.log_end_offset - 1, -1, log.log_start_offset)


def _take(
    log: PartitionLog,
    header: BatchHeader,
    view: memoryview,
    fragment: Fragment | None,
    base_offset: int,
    leader_epoch: int,
) -> int:
    """Hand a batch, whose offset and epoch stand in it already, to the store; returns its last offset."""
    if leader_epoch >= 0:
        log.epochs.assign(leader_epoch, base_offset)
    log.store.add_batch(log, header, view, fragment, base_offset, leader_epoch)
    last_offset = base_offset + header.last_offset_delta
    log.log_end_offset = last_offset + 1
    log.size_bytes += view.nbytes
    return last_offset


def _apply_plan(log: PartitionLog, plan: AppendPlan, base_offset: int, timestamp_ms: int | None) -> None:
    assert log.producers is not None
    completed = log.producers.apply(plan, base_offset, timestamp_ms)
    if completed is not None and completed.is_aborted:
        _add_aborted(log, completed)


class ProducersOfLog(Protocol):
    """What is known of a log's producers; None as long as there are none."""

    producers: ProducerStateManager | None
    aborted: AbortedTransactions | None


def replay_producer(log: ProducersOfLog, view: memoryview, header: BatchHeader) -> None:
    """Take over what a batch that is already in the log says of its producer (followers, recovery)."""
    if header.producer_id < 0:
        return
    if log.producers is None:
        log.producers = ProducerStateManager()
    completed = log.producers.replay(header, _marker(view, header))
    if completed is not None and completed.is_aborted:
        _add_aborted(log, completed)


def _add_aborted(log: ProducersOfLog, completed: CompletedTransaction) -> None:
    if log.aborted is None:
        log.aborted = AbortedTransactions()
    log.aborted.append(
        completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
    )


def _duplicate(log: PartitionLog, duplicate: DuplicateBatch) -> AppendInfo:
    return AppendInfo(
        duplicate.base_offset,
        duplicate.last_offset,
        duplicate.timestamp_ms,
        log.log_start_offset,
        duplicate=True,
    )


def _marker(records: memoryview, header: BatchHeader) -> EndTxnMarker | None:
    """The marker of a control batch; None for data, and for a control batch whose marker compaction has removed."""
    return parse_end_txn_marker(records, 0, header) if header.is_control else None


def _is_whole(records: memoryview, pos: int) -> bool:
    left = len(records) - pos
    return left > 12 and left >= int.from_bytes(records[pos + 8 : pos + 12], "big", signed=True) + 12
