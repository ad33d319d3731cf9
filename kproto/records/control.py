"""Control batches: records that Kafka writes for itself and consumers never see.

A control record's key is (version int16, type int16). The end-transaction marker (KIP-98) is the one a broker writes;
the others belong to the KRaft metadata log (KIP-595, KIP-630, KIP-853) and are recognised only.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.kproto.records.builder import build_batch
from ottla.kproto.records.errors import CorruptRecordError, InvalidRecordError
from ottla.kproto.records.header import BatchHeader, parse_batch_header
from ottla.kproto.records.reader import iter_records
from ottla.kproto.records.record import Record
from ottla.kproto.records.types import NO_LEADER_EPOCH, NO_SEQUENCE, BytesLike

_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")
_CONTROL_KEY_VERSION = 0
_END_TXN_VERSION = 0


class ControlRecordType(IntEnum):
    """What a control record says; UNKNOWN stands for types of later versions, which readers must skip."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTxnMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


def control_record_type(key: bytes | None) -> ControlRecordType:
    """Return the type that a control record's key names.

    Raises CorruptRecordError if it is not a control key, InvalidRecordError if its version is negative.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError("a control record's key takes four bytes")
    version, number = _KEY.unpack_from(key)
    if version < _CONTROL_KEY_VERSION:
        raise InvalidRecordError(f"control record key version {version}")
    try:
        return ControlRecordType(number)
    except ValueError:
        return ControlRecordType.UNKNOWN


def parse_end_txn_marker(buf: BytesLike, pos: int = 0, header: BatchHeader | None = None) -> EndTxnMarker | None:
    """Return the marker in the control batch at `pos`; None if it is a control batch of another kind, or empty.

    A marker batch holds exactly one record. Raises CorruptRecordError or InvalidRecordError if it is malformed, or not
    a control batch at all.
    """
    if header is None:
        header = parse_batch_header(buf, pos)
    if not header.is_control:
        raise InvalidRecordError("not a control batch")
    record = next(iter_records(buf, pos, header), None)
    if record is None:
        return None
    kind = control_record_type(record.key)
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise CorruptRecordError("an end-transaction marker's value takes six bytes")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
    if version < _END_TXN_VERSION:
        raise InvalidRecordError(f"end-transaction marker version {version}")
    is_commit = kind is ControlRecordType.COMMIT
    return EndTxnMarker(header.producer_id, header.producer_epoch, coordinator_epoch, is_commit)


def build_end_txn_marker(
    marker: EndTxnMarker, *, timestamp_ms: int, base_offset: int = 0, leader_epoch: int = NO_LEADER_EPOCH
) -> bytes:
    """Return the control batch of one marker, as a partition leader appends it."""
    kind = ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT
    record = Record(
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(_CONTROL_KEY_VERSION, kind),
        value=_END_TXN_VALUE.pack(_END_TXN_VERSION, marker.coordinator_epoch),
    )
    return build_batch(
        (record,),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        base_sequence=NO_SEQUENCE,
        is_transactional=True,
        is_control=True,
    )
