"""Record batches, format v2: everything that Kafka stores and sends as data.

Headers are read in place with one unpack, records only where somebody asks for them. Nothing here does I/O.
"""

from ottla.kproto.records.builder import BatchBuilder, assemble_batch, build_batch, build_keyed, rebuild_batch
from ottla.kproto.records.compression import DEFAULT_LIMIT_BYTES, compress, decompress
from ottla.kproto.records.control import (
    ControlRecordType,
    EndTxnMarker,
    build_end_txn_marker,
    control_record_type,
    parse_end_txn_marker,
)
from ottla.kproto.records.crc import crc32c
from ottla.kproto.records.errors import (
    CorruptRecordError,
    DecompressedSizeError,
    InvalidRecordError,
    RecordError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
)
from ottla.kproto.records.header import (
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    crc_matches,
    iter_batches,
    parse_batch_header,
    patch_base_offset_and_epoch,
    patch_log_append_time,
    validate_batch,
    validate_produced_batch,
    verify_crc,
    whole_batches_size_bytes,
)
from ottla.kproto.records.reader import batch_payload, find_timestamp, iter_keys, iter_positions, iter_records
from ottla.kproto.records.record import Record
from ottla.kproto.records.types import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BytesLike,
    Compression,
    TimestampType,
)
from ottla.kproto.records.walk import walk_produced_records

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "HEADER_SIZE_BYTES",
    "LENGTH_PREFIX_BYTES",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchBuilder",
    "BatchHeader",
    "BytesLike",
    "Compression",
    "ControlRecordType",
    "CorruptRecordError",
    "DecompressedSizeError",
    "EndTxnMarker",
    "InvalidRecordError",
    "Record",
    "RecordError",
    "TimestampType",
    "UnsupportedCompressionError",
    "UnsupportedMagicError",
    "assemble_batch",
    "batch_payload",
    "build_batch",
    "build_end_txn_marker",
    "build_keyed",
    "compress",
    "control_record_type",
    "crc32c",
    "crc_matches",
    "decompress",
    "find_timestamp",
    "iter_batches",
    "iter_keys",
    "iter_positions",
    "iter_records",
    "parse_batch_header",
    "parse_end_txn_marker",
    "patch_base_offset_and_epoch",
    "patch_log_append_time",
    "rebuild_batch",
    "validate_batch",
    "validate_produced_batch",
    "verify_crc",
    "walk_produced_records",
    "whole_batches_size_bytes",
]
