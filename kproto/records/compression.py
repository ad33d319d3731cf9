"""The four codecs of Kafka's record batches, with decompression that is bounded while it happens.

`decompress` never produces, nor allocates for, more than the caller's limit, whatever the data claim: a declared size
beyond it is refused before any work, and an undeclared one stops at the limit. Output memory grows with what
the data really hold, so that a lie about the size costs nothing.

Bytes behind the end of a stream are what they are to Java's libraries, with which Kafka reads. After a gzip member,
whatever is not another one is passed over; so is everything after LZ4's end mark, and less than a length after
xerial's last block. Further members, xerial streams and zstd frames are read, and nothing else may follow a zstd frame.

The codecs load on first use: a broker that passes batches through never needs them.
"""

import struct
import zlib
from collections.abc import Callable

from ottla.kproto.records.errors import CorruptRecordError, DecompressedSizeError
from ottla.kproto.records.types import BytesLike, Compression

DEFAULT_LIMIT_BYTES = 128 * 1024 * 1024

_FIRST_CAPACITY_BYTES = 64 * 1024
_FIRST_RATIO = 8
_GROWTH = 4

# How Java's snappy library frames a stream: magic, version 1, compatible version 1, then (length, raw block)*.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = struct.Struct(">i")
# Snappy's densest element turns 3 bytes into 64.
_SNAPPY_MAX_RATIO = 22

_GZIP_WBITS = 31
_GZIP_PIECE_BYTES = 8 * 1024
_GZIP_DEFAULT_LEVEL = -1
_GZIP_MEMBER = b"\x1f\x8b\x08"
# Java looks for another member only where there is room for one.
_GZIP_TOO_SHORT_BYTES = 18
_LZ4_DEFAULT_LEVEL = 9
_ZSTD_DEFAULT_LEVEL = 3

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_FLAG = 0x08
_LZ4_CONTENT_CHECKSUM_FLAG = 0x04
_LZ4_BLOCK_CHECKSUM_FLAG = 0x10
_LZ4_DICTIONARY_FLAG = 0x01
_LZ4_MIN_HEADER_BYTES = 7
_LZ4_BLOCK_SIZE = struct.Struct("<I")
_LZ4_BLOCK_SIZE_MASK = 0x7FFFFFFF

# The wording by which cramjam says that a fixed output buffer is full (held by a test).
_OUTPUT_FULL = "failed to write whole buffer"


def compress(compression: Compression, data: BytesLike, level: int | None = None) -> bytes:
    """Return `data` compressed as Java clients expect it.

    `level` is the codec's own scale, as in the topic settings `compression.gzip.level`, `compression.lz4.level` and
    `compression.zstd.level`; None is Kafka's default. Snappy has no levels.
    """
    if compression == Compression.GZIP:
        return zlib.compress(data, _GZIP_DEFAULT_LEVEL if level is None else level, _GZIP_WBITS)
    if compression == Compression.SNAPPY:
        return _compress_xerial(data)
    if compression == Compression.LZ4:
        return _compress_lz4(data, level)
    if compression == Compression.ZSTD:
        from cramjam import zstd

        return bytes(zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))
    return bytes(data)


def decompress(compression: Compression, data: BytesLike, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """Return the decompressed bytes, at most `limit_bytes` of them.

    It takes 1 to 4 ms for each MiB that comes out: on an event loop, large batches are for a worker thread.
    Raises DecompressedSizeError beyond the limit, CorruptRecordError for anything that the codec cannot read.
    """
    if compression == Compression.GZIP:
        return _decompress_gzip(data, limit_bytes)
    if compression == Compression.SNAPPY:
        return _decompress_snappy(data, limit_bytes)
    if compression == Compression.LZ4:
        from cramjam import lz4

        _check_claim(_lz4_claim(data), limit_bytes)
        return _decompress_growing(lz4.decompress_into, memoryview(data)[: _lz4_end(data)], limit_bytes)
    if compression == Compression.ZSTD:
        from cramjam import zstd

        _check_claim(_zstd_claim(data), limit_bytes)
        return _decompress_growing(zstd.decompress_into, data, limit_bytes)
    _check_claim(len(data), limit_bytes)
    return bytes(data)


def _check_claim(claimed_bytes: int, limit_bytes: int) -> None:
    if claimed_bytes > limit_bytes:
        raise DecompressedSizeError(f"records of {claimed_bytes} bytes, the limit is {limit_bytes}")


def _decompress_growing(
    decompress_into: Callable[[BytesLike, bytearray], int], data: BytesLike, limit_bytes: int
) -> bytes:
    """Decompress into a fixed buffer; when it is too small, start again with a larger one, up to the limit.

    Starting again costs a third more work in the worst case. The library's streaming objects would gather unbounded
    output inside themselves.
    """
    from cramjam import DecompressionError

    capacity = min(limit_bytes, max(_FIRST_CAPACITY_BYTES, _FIRST_RATIO * len(data)))
    while True:
        out = bytearray(capacity)
        try:
            size = decompress_into(data, out)
        except DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptRecordError(f"undecodable compressed records: {error}") from error
        else:
            return bytes(memoryview(out)[:size])
        if capacity == limit_bytes:
            raise DecompressedSizeError(f"the records inflate beyond the limit of {limit_bytes} bytes")
        capacity = min(limit_bytes, capacity * _GROWTH)


def _zstd_claim(data: BytesLike) -> int:
    """The content size that the first frame's header declares, 0 if it declares none (RFC 8878, 3.1.1.1)."""
    if len(data) < 5 or data[:4] != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    size_flag = descriptor >> 6
    size_length = 1 << size_flag if size_flag else single_segment
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(data[start : start + size_length], "little")
    return size + 256 if size_length == 2 else size


def _lz4_claim(data: BytesLike) -> int:
    """The content size that the frame's descriptor declares, 0 if it declares none."""
    if len(data) < 14 or data[:4] != _LZ4_MAGIC or not data[4] & _LZ4_CONTENT_SIZE_FLAG:
        return 0
    return int.from_bytes(data[6:14], "little")


def _lz4_end(data: BytesLike) -> int:
    """Where the first frame ends, after which Java reads nothing; the end of the data if it has no end mark."""
    if len(data) < _LZ4_MIN_HEADER_BYTES or data[:4] != _LZ4_MAGIC:
        return len(data)
    flags = data[4]
    pos = _LZ4_MIN_HEADER_BYTES
    pos += 8 if flags & _LZ4_CONTENT_SIZE_FLAG else 0
    pos += 4 if flags & _LZ4_DICTIONARY_FLAG else 0
    behind_block = 8 if flags & _LZ4_BLOCK_CHECKSUM_FLAG else 4
    last = len(data) - 4
    while pos <= last:
        (size,) = _LZ4_BLOCK_SIZE.unpack_from(data, pos)
        if not size:
            return min(len(data), pos + (8 if flags & _LZ4_CONTENT_CHECKSUM_FLAG else 4))
        pos += (size & _LZ4_BLOCK_SIZE_MASK) + behind_block
    return len(data)


def _compress_lz4(data: BytesLike, level: int | None) -> bytes:
    from cramjam import lz4

    # Java reads independent blocks only. Its default level 9 means the fast compressor, not level 9 of the dense one.
    packer = lz4.Compressor(
        level=None if level == _LZ4_DEFAULT_LEVEL else level, content_checksum=False, block_linked=False
    )
    packer.compress(data)
    return bytes(packer.finish())


def _decompress_gzip(data: BytesLike, limit_bytes: int) -> bytes:
    """Inflate every member in turn, as Java's GZIPInputStream does.

    The input goes in small pieces because zlib copies what follows a member's end: all at once would
    make many tiny members cost quadratic time.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    size = 0
    pos = 0
    inflater = zlib.decompressobj(_GZIP_WBITS)
    while pos < len(view):
        if inflater.eof:
            if len(view) - pos <= _GZIP_TOO_SHORT_BYTES or view[pos : pos + len(_GZIP_MEMBER)] != _GZIP_MEMBER:
                break
            inflater = zlib.decompressobj(_GZIP_WBITS)
        piece = view[pos : pos + _GZIP_PIECE_BYTES]
        try:
            part = inflater.decompress(piece, limit_bytes - size + 1)
        except zlib.error as error:
            raise CorruptRecordError(f"undecodable gzip records: {error}") from error
        pos += len(piece) - len(inflater.unused_data)
        size += len(part)
        if size > limit_bytes:
            raise DecompressedSizeError(f"the records inflate beyond the limit of {limit_bytes} bytes")
        parts.append(part)
    if not inflater.eof:
        raise CorruptRecordError("gzip records end early")
    return b"".join(parts)


def _compress_xerial(data: BytesLike) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: BytesLike, limit_bytes: int) -> bytes:
    """Read xerial's framing, or one raw block as some clients write it."""
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, limit_bytes)
    parts: list[bytes] = []
    pos = len(_XERIAL_HEADER)
    left = limit_bytes
    while pos < len(view):
        if pos + 4 > len(view):
            break
        if view[pos : pos + 4] == _XERIAL_MAGIC[:4]:
            if len(view) - pos < len(_XERIAL_HEADER):
                raise CorruptRecordError("the header of another snappy stream ends early")
            if view[pos : pos + len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
                break
            pos += len(_XERIAL_HEADER)
            continue
        end = pos + 4 + _INT32.unpack_from(view, pos)[0]
        if not pos + 4 < end <= len(view):
            raise CorruptRecordError(f"snappy block length {end - pos - 4} at byte {pos} does not fit")
        parts.append(_snappy_block(view[pos + 4 : end], left))
        left -= len(parts[-1])
        pos = end
    return b"".join(parts)


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        size = snappy.decompress_raw_len(block)
        _check_claim(size, limit_bytes)
        if size > _SNAPPY_MAX_RATIO * len(block):
            raise CorruptRecordError(f"a snappy block of {len(block)} bytes claims {size}")
        out = bytearray(size)
        written = snappy.decompress_raw_into(block, out)
    except DecompressionError as error:
        raise CorruptRecordError(f"undecodable snappy records: {error}") from error
    return bytes(memoryview(out)[:written])
