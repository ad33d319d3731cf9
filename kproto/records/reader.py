"""Reading the records of a batch.

Nothing is trusted: every record must fill exactly its declared length, and the records exactly the batch. The loops
are written out flat, with one- and two-byte varints inline: a call for each number would triple their cost.
"""

from collections.abc import Iterator

from ottla.kproto.records.compression import DEFAULT_LIMIT_BYTES, decompress
from ottla.kproto.records.errors import CorruptRecordError, InvalidRecordError
from ottla.kproto.records.header import (
    COMPRESSION_MASK,
    HEADER_SIZE_BYTES,
    LOG_APPEND_TIME_FLAG,
    MIN_RECORD_BYTES,
    BatchHeader,
    iter_batches,
    parse_batch_header,
)
from ottla.kproto.records.record import Record
from ottla.kproto.records.types import BytesLike
from ottla.kproto.records.varint import read_varint, read_varlong
from ottla.kproto.text import ERRORS_OF_ANY_LENGTH

_new_tuple = tuple.__new__

# The zigzag value of a varint's first byte, continuation bit ignored. A second byte `m` is simply `^ m << 6`.
_ZIGZAG = tuple((byte & 127) >> 1 ^ -(byte & 1) for byte in range(256))


def batch_payload(buf: BytesLike, pos: int, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """Return the batch's records section, decompressed, as one bytes object of at most `limit_bytes`."""
    start = pos + HEADER_SIZE_BYTES
    end = pos + header.size_bytes
    if not header.attributes & COMPRESSION_MASK:
        return bytes(buf[start:end])
    return decompress(header.compression, memoryview(buf)[start:end], limit_bytes)


def iter_records(
    buf: BytesLike,
    pos: int = 0,
    header: BatchHeader | None = None,
    *,
    strict: bool = False,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Iterator[Record]:
    """Yield the records of the batch that begins at `pos`; keys and values are copies, free of `buf`'s life.

    Raises CorruptRecordError for whatever cannot be read: lengths, counts, trailing bytes, headers that are not
    UTF-8; DecompressedSizeError beyond `limit_bytes`. With `strict`, also InvalidRecordError where a record breaks a
    rule that readers do not depend on: offset deltas rise and stay within the batch (dense where the header says
    so), attributes are zero, no timestamp lies above the batch's maximum. The CRC is not checked here.
    """
    if header is None:
        header = parse_batch_header(buf, pos)
    payload = batch_payload(buf, pos, header, limit_bytes)
    records = _decode(payload, header)
    return _strict(payload, header, records) if strict else records


def _decode(data: bytes, header: BatchHeader) -> Iterator[Record]:  # noqa: C901 - flat for speed, see above
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp_ms
    log_append_time = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME_FLAG else None
    new = _new_tuple
    zigzag = _ZIGZAG
    size = len(data)
    _check_count(header.record_count, size)
    p = 0
    try:
        for _ in range(header.record_count):
            n = data[p]
            if n < 128:
                n = zigzag[n]
                p += 1
            elif (m := data[p + 1]) < 128:
                n = zigzag[n] ^ m << 6
                p += 2
            else:
                n, p = read_varint(data, p)
            end = p + n
            if end > size:
                raise CorruptRecordError(f"a record of {n} bytes at byte {p} exceeds the batch's {size}")
            p += 1  # the attributes have no meaning yet
            n = data[p]
            if n < 128:
                n = zigzag[n]
                p += 1
            elif (m := data[p + 1]) < 128:
                n = zigzag[n] ^ m << 6
                p += 2
            else:
                n, p = read_varlong(data, p)
            timestamp = base_timestamp + n if log_append_time is None else log_append_time
            n = data[p]
            if n < 128:
                n = zigzag[n]
                p += 1
            elif (m := data[p + 1]) < 128:
                n = zigzag[n] ^ m << 6
                p += 2
            else:
                n, p = read_varint(data, p)
            offset = base_offset + n
            n = data[p]
            if n < 128:
                n = zigzag[n]
                p += 1
            elif (m := data[p + 1]) < 128:
                n = zigzag[n] ^ m << 6
                p += 2
            else:
                n, p = read_varint(data, p)
            if n < 0:
                key = None
            else:
                key = data[p : p + n]
                p += n
            n = data[p]
            if n < 128:
                n = zigzag[n]
                p += 1
            elif (m := data[p + 1]) < 128:
                n = zigzag[n] ^ m << 6
                p += 2
            else:
                n, p = read_varint(data, p)
            if n < 0:
                value = None
            else:
                value = data[p : p + n]
                p += n
            if data[p]:
                headers, p = _read_headers(data, p, end)
            else:
                headers = ()
                p += 1
            if p != end:
                raise CorruptRecordError(f"a record ends at byte {p}, its length says {end}")
            yield new(Record, (offset, timestamp, key, value, headers))
    except IndexError:
        raise CorruptRecordError(f"a record ends beyond the batch's {size} bytes") from None
    if p != size:
        raise CorruptRecordError(f"{size - p} bytes follow the last record")


def _check_count(record_count: int, size: int) -> None:
    if not 0 <= record_count * MIN_RECORD_BYTES <= size:
        raise CorruptRecordError(f"{record_count} records cannot fit in {size} bytes")


def _read_headers(data: bytes, pos: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, pos = read_varint(data, pos)
    # A header takes at least two bytes: a lying count must not start a long loop.
    if not 0 <= count <= (end - pos) // 2:
        raise CorruptRecordError(f"{count} record headers cannot fit in {end - pos} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, pos = read_varint(data, pos)
        if not 0 <= size <= end - pos:
            raise CorruptRecordError(f"a record header key of {size} bytes at byte {pos}")
        key = data[pos : pos + size].decode("utf-8", ERRORS_OF_ANY_LENGTH)
        pos += size
        size, pos = read_varint(data, pos)
        if size > end - pos:
            raise CorruptRecordError(f"a record header value of {size} bytes at byte {pos}")
        value = None
        if size >= 0:
            value = data[pos : pos + size]
            pos += size
        headers.append((key, value))
    return tuple(headers), pos


def _strict(payload: bytes, header: BatchHeader, records: Iterator[Record]) -> Iterator[Record]:
    dense = header.record_count == header.last_offset_delta + 1
    expected = header.base_offset
    start = 0
    for record in records:
        if record.offset < expected or (dense and record.offset != expected) or record.offset > header.last_offset:
            raise InvalidRecordError(f"record offset {record.offset} where {expected} was due")
        if record.timestamp_ms > header.max_timestamp_ms:
            raise InvalidRecordError(
                f"record timestamp {record.timestamp_ms} above the batch's maximum {header.max_timestamp_ms}"
            )
        length, body = read_varint(payload, start)
        if payload[body]:
            raise InvalidRecordError(f"record attributes {payload[body]} are not zero")
        start = body + length
        expected = record.offset + 1
        yield record


def iter_positions(
    buf: BytesLike,
    pos: int = 0,
    header: BatchHeader | None = None,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Iterator[tuple[int, int]]:
    """Yield (offset, timestamp_ms) of each record, skipping over keys, values and headers unread."""
    if header is None:
        header = parse_batch_header(buf, pos)
    for offset, timestamp_ms, _, _, _ in _skim(batch_payload(buf, pos, header, limit_bytes), header):
        yield offset, timestamp_ms


def find_timestamp(buf: BytesLike, timestamp_ms: int, least_offset: int) -> tuple[int, int, int] | None:
    """The first record, in a buffer of whole batches, at or beyond an offset whose time is at least this: its time, its
    offset, and its leader epoch. Markers count, as in Kafka (`FileRecords.searchForTimestamp`).

    Raises as `iter_batches` and `iter_records` do.
    """
    for pos, header in iter_batches(buf):
        if header.max_timestamp_ms < timestamp_ms or header.last_offset < least_offset:
            continue
        for offset, record_ms in iter_positions(buf, pos, header):
            if record_ms >= timestamp_ms and offset >= least_offset:
                return record_ms, offset, header.leader_epoch
    return None


def iter_keys(
    buf: BytesLike,
    pos: int = 0,
    header: BatchHeader | None = None,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Iterator[tuple[int, bytes | None, bool]]:
    """Yield (offset, key, whether the value is null) of each record, for compaction; values are not read."""
    if header is None:
        header = parse_batch_header(buf, pos)
    payload = batch_payload(buf, pos, header, limit_bytes)
    for offset, _, key_pos, key_size, end in _skim(payload, header):
        key = None
        value_pos = key_pos
        if key_size >= 0:
            value_pos = key_pos + key_size
            key = payload[key_pos:value_pos]
        value_size, value_pos = read_varint(payload, value_pos)
        if value_pos + max(value_size, 0) >= end:
            raise CorruptRecordError(f"a record value of {value_size} bytes at byte {value_pos} exceeds its record")
        yield offset, key, value_size < 0


def _skim(  # noqa: C901 - flat for speed, see above
    data: bytes, header: BatchHeader
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (offset, timestamp_ms, key position, key size, record end), jumping from record to record."""
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp_ms
    log_append_time = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME_FLAG else None
    zigzag = _ZIGZAG
    size = len(data)
    _check_count(header.record_count, size)
    p = 0
    try:
        for _ in range(header.record_count):
            n = data[p]
            if n < 128:
                n = zigzag[n]
                p += 1
            elif (m := data[p + 1]) < 128:
                n = zigzag[n] ^ m << 6
                p += 2
            else:
                n, p = read_varint(data, p)
            end = p + n
            if end > size or n < MIN_RECORD_BYTES - 1:
                raise CorruptRecordError(f"a record of {n} bytes at byte {p} in a batch of {size}")
            p += 1
            n = data[p]
            if n < 128:
                n = zigzag[n]
                p += 1
            elif (m := data[p + 1]) < 128:
                n = zigzag[n] ^ m << 6
                p += 2
            else:
                n, p = read_varlong(data, p)
            timestamp = base_timestamp + n if log_append_time is None else log_append_time
            n = data[p]
            if n < 128:
                n = zigzag[n]
                p += 1
            elif (m := data[p + 1]) < 128:
                n = zigzag[n] ^ m << 6
                p += 2
            else:
                n, p = read_varint(data, p)
            offset = base_offset + n
            n = data[p]
            if n < 128:
                n = zigzag[n]
                p += 1
            elif (m := data[p + 1]) < 128:
                n = zigzag[n] ^ m << 6
                p += 2
            else:
                n, p = read_varint(data, p)
            if p + (n if n > 0 else 0) >= end:
                raise CorruptRecordError(f"a record key of {n} bytes at byte {p} exceeds its record")
            yield offset, timestamp, p, n, end
            p = end
    except IndexError:
        raise CorruptRecordError(f"a record ends beyond the batch's {size} bytes") from None
    if p != size:
        raise CorruptRecordError(f"{size - p} bytes follow the last record")
