"""Kafka's zigzag varints as records use them, and the plain unsigned ones.

Parsing functions take a position and return (value, next position). They never read past the buffer: a missing byte is
CorruptRecordError, as is a number that does not fit its width.
"""

from ottla.kproto.records.errors import CorruptRecordError
from ottla.kproto.records.types import BytesLike

_MAX_VARINT_SHIFT = 28
_MAX_VARLONG_SHIFT = 63
_UINT64_MASK = (1 << 64) - 1


def read_varint(buf: BytesLike, pos: int) -> tuple[int, int]:
    """Read a signed 32-bit zigzag varint (at most five bytes)."""
    raw, pos = _read_raw(buf, pos, _MAX_VARINT_SHIFT)
    if raw >> 32:
        raise CorruptRecordError(f"varint before byte {pos} exceeds 32 bits")
    return (raw >> 1) ^ -(raw & 1), pos


def read_varlong(buf: BytesLike, pos: int) -> tuple[int, int]:
    """Read a signed 64-bit zigzag varint (at most ten bytes)."""
    raw, pos = _read_raw(buf, pos, _MAX_VARLONG_SHIFT)
    if raw >> 64:
        raise CorruptRecordError(f"varlong before byte {pos} exceeds 64 bits")
    return (raw >> 1) ^ -(raw & 1), pos


def _read_raw(buf: BytesLike, pos: int, max_shift: int) -> tuple[int, int]:
    value = 0
    shift = 0
    size = len(buf)
    while pos < size:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
        if shift > max_shift:
            raise CorruptRecordError(f"varint before byte {pos} is too long")
    raise CorruptRecordError(f"varint ends beyond the buffer of {size} bytes")


def varint(value: int) -> bytes:
    """Return the zigzag varint of a signed number of at most 64 bits."""
    if -64 <= value < 64:
        return _ONE_BYTE[value]
    raw = (value << 1 ^ value >> 63) & _UINT64_MASK
    if raw < 0x4000:
        return bytes((raw & 0x7F | 0x80, raw >> 7))
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# Indexed by the number itself, the negative ones from the end.
_ONE_BYTE = [bytes((value << 1,)) for value in range(64)] + [bytes((-value * 2 - 1,)) for value in range(-64, 0)]
