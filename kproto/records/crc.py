"""CRC-32C over any buffer, with one small bounded copy."""

from google_crc32c import extend

from ottla.kproto.records.types import BytesLike

# The library takes `bytes` alone. Copying piece by piece through a block that stays in the L2 cache costs as much
# as one large copy (about 50 µs per MiB, as the checksum itself) and never doubles the memory of a large batch.
_PIECE_BYTES = 128 * 1024


def crc32c(buf: BytesLike, start: int, end: int) -> int:
    """Return the CRC-32C (Castagnoli) of `buf[start:end]`."""
    if end - start <= _PIECE_BYTES:
        checksum: int = extend(0, bytes(buf[start:end]))
        return checksum
    value = 0
    view = memoryview(buf)
    for piece in range(start, end, _PIECE_BYTES):
        value = extend(value, bytes(view[piece : min(piece + _PIECE_BYTES, end)]))
    return value
