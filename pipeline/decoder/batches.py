"""The batches in a buffer: their headers as columns, which of them are wanted, and their records' bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.kproto.records import (
    HEADER_SIZE_BYTES,
    LENGTH_PREFIX_BYTES,
    Compression,
    CorruptRecordError,
    UnsupportedCompressionError,
    UnsupportedMagicError,
    crc32c,
    decompress,
    parse_end_txn_marker,
)
from ottla.pipeline.decoder.varints import Bytes, Ints

__all__ = ["Batches", "Payloads", "read_batches"]

_LENGTH: Final = struct.Struct(">i")
_LENGTH_POS: Final = 8
_CRC_START: Final = 21
_MAGIC: Final = 2
_MIN_RECORD_BYTES: Final = 7

_HEADER: Final = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"),
        ("max_timestamp_ms", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)

_COMPRESSION: Final = 0x07
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20

# How many rows and bytes go into one Arrow batch at most, unless a single record batch is larger.
_GROUP_ROWS: Final = 131_072
_GROUP_BYTES: Final = 16 * 1024 * 1024


class Payloads(NamedTuple):
    """Records of several batches in one buffer: those of batch `i` lie from `starts[i]` to `ends[i]`."""

    data: Bytes
    starts: Ints
    ends: Ints
    headers: NDArray[Any]


class Batches:
    """The whole batches of a buffer, in order. `headers` has a row for each, `positions` where it begins."""

    def __init__(self, buffer: memoryview, positions: Ints, headers: NDArray[Any]) -> None:
        self.buffer = buffer
        self.positions = positions
        self.headers = headers

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def last_offsets(self) -> Ints:
        found: Ints = self.headers["base_offset"].astype(np.int64) + self.headers["last_offset_delta"]
        return found

    def select(self, wanted: NDArray[np.bool_]) -> Batches:
        """The batches that are wanted."""
        return self if bool(wanted.all()) else Batches(self.buffer, self.positions[wanted], self.headers[wanted])

    def verify_crcs(self) -> None:
        """Raise CorruptRecordError unless every batch's CRC is right."""
        sizes = self.headers["batch_length"].astype(np.int64) + LENGTH_PREFIX_BYTES
        buffer = self.buffer
        for pos, end, crc in zip(
            self.positions.tolist(), (self.positions + sizes).tolist(), self.headers["crc"].tolist(), strict=True
        ):
            if crc32c(buffer, pos + _CRC_START, end) != crc:
                (offset,) = struct.unpack_from(">q", buffer, pos)
                raise CorruptRecordError(f"the checksum of the batch with base offset {offset} is wrong")

    def without_aborted(self, aborted: Sequence[tuple[int, int]]) -> Batches:
        """Leave out what belongs to the aborted transactions: (producer id, first offset), in any order.

        As Kafka's consumer does it: a producer's transactional batches are skipped from where its aborted transaction
        begins up to the marker that ends it.
        """
        if not aborted:
            return self
        wanted = np.ones(len(self), dtype=np.bool_)
        waiting = sorted(((first, producer) for producer, first in aborted), reverse=True)
        aborting: set[int] = set()
        attributes = self.headers["attributes"]
        for index in np.flatnonzero(attributes & _TRANSACTIONAL).tolist():
            header = self.headers[index]
            last_offset = int(header["base_offset"]) + int(header["last_offset_delta"])
            while waiting and waiting[-1][0] <= last_offset:
                aborting.add(waiting.pop()[1])
            producer = int(header["producer_id"])
            if producer not in aborting:
                continue
            if not attributes[index] & _CONTROL:
                wanted[index] = False
            else:
                marker = parse_end_txn_marker(self.buffer, int(self.positions[index]))
                if marker is not None and not marker.is_commit:
                    aborting.discard(producer)
        return self.select(wanted)

    def without_control(self) -> Batches:
        """Leave out control batches, and those from which compaction took every record."""
        return self.select((self.headers["attributes"] & _CONTROL == 0) & (self.headers["record_count"] != 0))

    def payloads(self, limit_bytes: int) -> Iterator[Payloads]:
        """The records' bytes, decompressed, in groups of bounded size.

        Uncompressed ones stay where they are. No batch may inflate beyond `limit_bytes`: DecompressedSizeError.
        """
        compressed = (self.headers["attributes"] & _COMPRESSION) != 0
        first = 0
        while first < len(self):
            same = np.flatnonzero(compressed[first:] != compressed[first])
            end = first + int(same[0]) if same.size else len(self)
            if compressed[first]:
                payloads = self._inflated(first, end, limit_bytes)
            else:
                payloads = self._in_place(first, end)
            yield _checked(payloads)
            first += len(payloads.starts)

    def _in_place(self, first: int, end: int) -> Payloads:
        headers = self.headers[first:end]
        sizes = headers["batch_length"].astype(np.int64) + (LENGTH_PREFIX_BYTES - HEADER_SIZE_BYTES)
        rows = np.cumsum(headers["record_count"].astype(np.int64))
        fitting = min(_fitting(rows, _GROUP_ROWS), _fitting(np.cumsum(sizes), _GROUP_BYTES))
        starts = self.positions[first : first + fitting] + HEADER_SIZE_BYTES
        data = np.frombuffer(self.buffer, dtype=np.uint8)
        return Payloads(data, starts, starts + sizes[:fitting], headers[:fitting])

    def _inflated(self, first: int, end: int, limit_bytes: int) -> Payloads:
        parts: list[bytes] = []
        size = rows = 0
        ends = []
        for index in range(first, end):
            header = self.headers[index]
            code = int(header["attributes"]) & _COMPRESSION
            if code > max(Compression):
                raise UnsupportedCompressionError(f"compression codec {code} does not exist")
            start = int(self.positions[index])
            batch_end = start + LENGTH_PREFIX_BYTES + int(header["batch_length"])
            packed = self.buffer[start + HEADER_SIZE_BYTES : batch_end]
            parts.append(decompress(Compression(code), packed, limit_bytes))
            size += len(parts[-1])
            rows += int(header["record_count"])
            ends.append(size)
            if size >= _GROUP_BYTES or rows >= _GROUP_ROWS:
                break
        bounds = np.array([0, *ends], dtype=np.int64)
        data = np.frombuffer(b"".join(parts), dtype=np.uint8)
        return Payloads(data, bounds[:-1], bounds[1:], self.headers[first : first + len(ends)])


def read_batches(buffer: memoryview) -> Batches:
    """The batches of a buffer that holds whole batches only.

    Raises CorruptRecordError for an impossible length, UnsupportedMagicError for v0 and v1.
    """
    found = []
    pos = 0
    size = len(buffer)
    last_start = size - HEADER_SIZE_BYTES
    length_at = _LENGTH.unpack_from
    while pos <= last_start:
        found.append(pos)
        (length,) = length_at(buffer, pos + _LENGTH_POS)
        if length < HEADER_SIZE_BYTES - LENGTH_PREFIX_BYTES:
            raise CorruptRecordError(f"the batch at byte {pos} has length {length}")
        pos += length + LENGTH_PREFIX_BYTES
    if pos != size:
        raise CorruptRecordError(f"the last batch ends at byte {pos}, the data at byte {size}")
    positions = np.array(found, dtype=np.int64)
    data = np.frombuffer(buffer, dtype=np.uint8)
    headers = data[positions[:, None] + np.arange(HEADER_SIZE_BYTES)].view(_HEADER).reshape(len(positions))
    if bool((wrong := headers["magic"] != _MAGIC).any()):
        raise UnsupportedMagicError(f"a batch has magic {headers['magic'][wrong][0]}, only 2 is supported")
    return Batches(buffer, positions, headers)


def _fitting(totals: Ints, limit: int) -> int:
    """How many leading entries stay within a limit; one at least."""
    return max(1, int(np.searchsorted(totals, limit, side="right")))


def _checked(payloads: Payloads) -> Payloads:
    counts = payloads.headers["record_count"].astype(np.int64)
    if bool(((counts < 0) | (counts * _MIN_RECORD_BYTES > payloads.ends - payloads.starts)).any()):
        raise CorruptRecordError("a batch has more records than fit in its bytes")
    return payloads
