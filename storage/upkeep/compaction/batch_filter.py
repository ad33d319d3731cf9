"""Which records of a batch survive compaction (Kafka's `Cleaner` and `MemoryRecords.filterTo`, KIP-354, KIP-534).

A pass has two walks over one partition. The first notes the latest offset of each key in the dirty part
(`index_batch`); the second rewrites every batch from the log start offset up to the offset which the map accounts for
(`BatchFilter`). Offsets, sequences and leader epochs never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.kproto.records import (
    BatchHeader,
    BytesLike,
    iter_keys,
    iter_records,
    parse_end_txn_marker,
    rebuild_batch,
)
from ottla.kproto.records.header import DELETE_HORIZON_FLAG
from ottla.storage.state.producer_state import ProducerStateManager
from ottla.storage.upkeep.compaction.offset_map import OffsetMap
from ottla.storage.upkeep.compaction.transactions import CleanedTransactions, MarkerUse


class LastRecord(NamedTuple):
    """What must stay in the log of a producer that is still active: its batches from `data_offset` on.

    `data_offset` is -1 if only a marker is known.
    """

    data_offset: int
    producer_epoch: int


def last_records(state: ProducerStateManager | None) -> dict[int, LastRecord]:
    """The last records of all active producers; take them when a pass begins."""
    if state is None:
        return {}
    return {
        entry.producer_id: LastRecord(entry.last_data_offset, entry.producer_epoch)
        for entry in state.active_producers()
    }


def index_batch(
    offset_map: OffsetMap,
    transactions: CleanedTransactions,
    buf: BytesLike,
    pos: int,
    header: BatchHeader,
    first_dirty_offset: int,
) -> bool:
    """Note a batch's keys, of committed records only; False when the map is full: the pass ends in this batch.

    The map then accounts for the records before the one that did not fit. Raises RecordError for a corrupt batch.
    """
    if header.is_control:
        transactions.on_marker(header, parse_end_txn_marker(buf, pos, header))
    elif not transactions.on_batch(header):
        for offset, key, _ in iter_keys(buf, pos, header):
            if key is not None and offset >= first_dirty_offset and not offset_map.put(key, offset):
                return False
    if header.last_offset >= first_dirty_offset:
        offset_map.accounts_to(header.last_offset)
    return True


class BatchFilter:
    """The second walk of a pass over one partition: batch by batch, in offset order from the log start offset on.

    Up to the end of the cleanable part: never beyond the first open transaction, the high watermark or what
    `min.compaction.lag.ms` protects. A tombstone, and the marker of a transaction of which nothing is left, first get a
    delete horizon of `now_ms + delete_retention_ms` and go in the first pass after that time, so that a reader that
    began before can see them.
    """

    __slots__ = (
        "_delete_retention_ms",
        "_high_watermark",
        "_last_records",
        "_map",
        "_now_ms",
        "_transactions",
    )

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastRecord],
        *,
        high_watermark: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._last_records = producers
        self._high_watermark = high_watermark
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms

    def clean(self, buf: BytesLike, pos: int, header: BatchHeader) -> BytesLike | None:
        """The batch as it is to be: a view of it if nothing changes, new bytes, or None if it goes.

        Raises RecordError for a corrupt batch, which the caller must keep as it is.
        """
        return self._clean_control(buf, pos, header) if header.is_control else self._clean_data(buf, pos, header)

    def _clean_control(self, buf: BytesLike, pos: int, header: BatchHeader) -> BytesLike | None:
        marker = parse_end_txn_marker(buf, pos, header)
        use = self._transactions.on_marker(header, marker)
        if header.record_count == 0:
            return _unchanged(buf, pos, header) if self._must_stay(header) else None
        horizon_ms = header.delete_horizon_ms
        if use is not MarkerUse.NEEDED and horizon_ms is None:
            return rebuild_batch(header, iter_records(buf, pos, header), delete_horizon_ms=self._new_horizon_ms)
        if use is MarkerUse.NONE and horizon_ms is not None and horizon_ms <= self._now_ms:
            return self._empty(header)
        return _unchanged(buf, pos, header)

    def _clean_data(self, buf: BytesLike, pos: int, header: BatchHeader) -> BytesLike | None:
        if self._transactions.on_batch(header):
            return self._empty(header)
        if header.base_offset > self._map.latest_offset:
            # Beyond what the map accounts for all records stay; a tombstone among them gets its horizon another time.
            return _unchanged(buf, pos, header)
        kept, has_tombstone = self._survivors(buf, pos, header)
        if not kept:
            return self._empty(header)
        new_horizon = has_tombstone and header.delete_horizon_ms is None
        if len(kept) == header.record_count and not new_horizon:
            return _unchanged(buf, pos, header)
        records = [record for record in iter_records(buf, pos, header) if record.offset in kept]
        return rebuild_batch(header, records, delete_horizon_ms=self._new_horizon_ms if new_horizon else None)

    def _survivors(self, buf: BytesLike, pos: int, header: BatchHeader) -> tuple[set[int], bool]:
        """The offsets of the records that stay, and whether a tombstone is among them."""
        offset_map = self._map
        horizon_ms = header.delete_horizon_ms
        keep_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        kept: set[int] = set()
        has_tombstone = False
        for offset, key, is_tombstone in iter_keys(buf, pos, header):
            if offset <= offset_map.latest_offset:
                if key is None:
                    continue  # a compacted topic should not have it: Kafka drops it, too
                if offset < offset_map.get(key) or (is_tombstone and not keep_tombstones):
                    continue
            kept.add(offset)
            has_tombstone = has_tombstone or is_tombstone
        return kept, has_tombstone

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the batch is kept without records, for what its header says.

        That is the last sequence of an active producer, or its epoch, or where the log ends: what follows a cleaned
        part says so itself (Kafka 4.4).
        """
        if header.next_offset == self._high_watermark:
            return True
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset >= last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _empty(self, header: BatchHeader) -> bytes | None:
        if not self._must_stay(header):
            return None
        bare = header._replace(attributes=header.attributes & ~DELETE_HORIZON_FLAG, base_timestamp_ms=-1)
        return rebuild_batch(bare, ())

    @property
    def _new_horizon_ms(self) -> int:
        return self._now_ms + self._delete_retention_ms


def _unchanged(buf: BytesLike, pos: int, header: BatchHeader) -> BytesLike:
    return memoryview(buf)[pos : pos + header.size_bytes]
