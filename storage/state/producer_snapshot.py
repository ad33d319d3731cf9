"""A partition's producer state as bytes, for the store's checkpoint.

Big-endian: version (int16), CRC-32C of all that follows (uint32), end offset (int64), counts of producers and of
transactions whose marker awaits the high watermark (two int32); then the producers: id (int64), epoch (int16),
coordinator epoch (int32), last timestamp (int64), first offset of the open transaction or -1 (int64), count of
batches (int8), and for each batch last sequence (int32), last offset (int64), offset delta (int32), timestamp (int64);
then (first offset, marker offset) pairs (two int64). Unlike Kafka's snapshot it keeps all five batches, so that a
restart recognises every duplicate which the running broker would.
"""

from __future__ import annotations

import struct
from collections.abc import Generator

from ottla.kproto.records.crc import value as crc32c
from ottla.storage.errors import CorruptLogError, UnsupportedFormatError
from ottla.storage.state.producer_state import (
    BatchMetadata,
    FrozenProducers,
    ProducerEntry,
    ProducerStateManager,
)

VERSION = 1

_PREFIX = struct.Struct(">hI")
_HEADER = struct.Struct(">qii")
_PRODUCER = struct.Struct(">qhiqqb")
_BATCH = struct.Struct(">iqiq")
_PAIR = struct.Struct(">qq")


#: So many producers are packed between two stops.


def write_snapshot(state: FrozenProducers) -> bytes:
    """The state as bytes."""
    steps = write_snapshot_in_steps(state)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            content: bytes = end.value
            return content


def write_snapshot_in_steps(state: FrozenProducers) -> Generator[None, None, bytes]:
    """`write_snapshot` with a stop behind each producer."""
    parts = [_HEADER.pack(state.end_offset, len(state.producers), len(state.undecided))]
    for entry in state.producers:
        parts.append(
            _PRODUCER.pack(
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.last_timestamp_ms,
                entry.transaction_first_offset,
                len(entry.batches),
            )
        )
        parts += [_BATCH.pack(*batch) for batch in entry.batches]
        yield
    for pair in state.undecided.items():
        parts.append(_PAIR.pack(*pair))
        yield
    body = b"".join(parts)
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def read_snapshot(content: bytes) -> ProducerStateManager:
    """The state that `write_snapshot` wrote.

    CorruptLogError if a byte is wrong: the caller rebuilds from the batches. UnsupportedFormatError for a version
    that is not known.
    """
    if len(content) < _PREFIX.size + _HEADER.size:
        raise CorruptLogError("a producer snapshot ends early")
    version, crc = _PREFIX.unpack_from(content)
    if version != VERSION:
        raise UnsupportedFormatError(f"a producer snapshot has version {version}, this release reads {VERSION}")
    body = content[_PREFIX.size :]
    if crc32c(body) != crc:
        raise CorruptLogError("a producer snapshot fails its checksum")
    try:
        return _read_body(body)
    except struct.error as error:
        raise CorruptLogError("a producer snapshot ends early") from error


def _read_body(body: bytes) -> ProducerStateManager:
    end_offset, producer_count, undecided_count = _HEADER.unpack_from(body)
    position = _HEADER.size
    producers = []
    for _ in range(producer_count):
        producer_id, epoch, coordinator_epoch, timestamp_ms, first_offset, batch_count = _PRODUCER.unpack_from(
            body, position
        )
        position += _PRODUCER.size
        batches = []
        for _ in range(batch_count):
            batches.append(BatchMetadata(*_BATCH.unpack_from(body, position)))
            position += _BATCH.size
        producers.append(ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp_ms, first_offset, batches))
    undecided = []
    for _ in range(undecided_count):
        undecided.append(_PAIR.unpack_from(body, position))
        position += _PAIR.size
    if position != len(body):
        raise CorruptLogError("a producer snapshot is longer than it says")
    state = ProducerStateManager()
    state.restore(end_offset, producers, undecided)
    return state
