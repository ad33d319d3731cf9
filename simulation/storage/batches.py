"""Batches as producers build them, and as consumers read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.kproto.records import (
    BatchHeader,
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    iter_batches,
    iter_records,
    parse_end_txn_marker,
    verify_crc,
)
from ottla.simulation.storage.engine import AbortedTransaction
from ottla.simulation.storage.model import Batch, Seen

__all__ = ["ReadBatch", "build", "committed", "parse"]


class ReadBatch(NamedTuple):
    """A batch that was read. `aborts` is true of the marker that ends an aborted transaction."""

    header: BatchHeader
    records: list[Seen]
    aborts: bool


def build(batch: Batch, *, is_numbered: bool) -> bytes:
    """A batch as a producer sends it, or as a leader does, with its offsets and epoch."""
    base_offset, leader_epoch = (batch.base_offset, batch.epoch) if is_numbered else (0, -1)
    if batch.commits is not None:
        marker = EndTxnMarker(batch.producer_id, 0, 0, is_commit=batch.commits)
        content = build_end_txn_marker(
            marker, timestamp_ms=batch.timestamp_ms, base_offset=base_offset, leader_epoch=leader_epoch
        )
    else:
        content = build_batch(
            [Record(timestamp_ms=batch.timestamp_ms, key=key, value=value) for key, value in batch.rows],
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=0 if batch.producer_id >= 0 else -1,
            base_sequence=batch.base_sequence,
            is_transactional=batch.is_transactional,
        )
    batch.size_bytes = len(content)
    return content


def parse(content: bytes) -> list[ReadBatch]:
    """What was read; a ProtocolError if it is damaged."""
    found = []
    for pos, header in iter_batches(content):
        verify_crc(content, pos, header)
        if header.is_control:
            marker = parse_end_txn_marker(content, pos, header) if header.record_count else None
            found.append(ReadBatch(header, [], marker is not None and not marker.is_commit))
        else:
            records = [
                (record.offset, bytes(record.key or b""), None if record.value is None else bytes(record.value))
                for record in iter_records(content, pos, header)
            ]
            found.append(ReadBatch(header, records, aborts=False))
    return found


def committed(batches: Iterable[ReadBatch], aborted: Iterable[AbortedTransaction]) -> list[Seen]:
    """The records that a read_committed consumer shows: it skips those of the aborted transactions in the list."""
    starts = sorted((each.first_offset, each.producer_id) for each in aborted)
    skipped: set[int] = set()
    found: list[Seen] = []
    for header, records, aborts in batches:
        while starts and starts[0][0] <= header.last_offset:
            skipped.add(starts.pop(0)[1])
        if header.is_control:
            if aborts:
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            found += records
    return found
