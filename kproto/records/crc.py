"""CRC-32C (Castagnoli) over any buffer, which is read in place if fastcrc is installed.

fastcrc has wheels for x86-64 and 64-bit ARM. Elsewhere google-crc32c is used, which only takes `bytes`.
"""

from collections.abc import Callable
from typing import Final

from ottla.kproto.records.types import BytesLike

__all__ = ["crc32c", "extend", "value"]

# What google-crc32c is given at once: a copy that stays in the L2 cache, and never doubles the memory of a large batch.
_PIECE_BYTES: Final = 128 * 1024

try:
    from fastcrc.crc32 import iscsi
except ImportError:
    import google_crc32c

    _extend: Callable[[int, bytes], int] = google_crc32c.extend

    def extend(crc: int, data: BytesLike) -> int:
        """The CRC of bytes whose CRC is `crc` (0: of no bytes) with `data` after them."""
        view = memoryview(data)
        for start in range(0, len(view), _PIECE_BYTES):
            crc = _extend(crc, bytes(view[start : start + _PIECE_BYTES]))
        return crc

    def crc32c(buf: BytesLike, start: int, end: int) -> int:
        """The CRC of `buf[start:end]`."""
        return extend(0, memoryview(buf)[start:end])

else:
    _sum: Callable[..., int] = iscsi

    def extend(crc: int, data: BytesLike) -> int:
        """The CRC of bytes whose CRC is `crc` (0: of no bytes) with `data` after them."""
        return _sum(data, crc)

    def crc32c(buf: BytesLike, start: int, end: int) -> int:
        """The CRC of `buf[start:end]`."""
        return _sum(buf[start:end])


def value(data: BytesLike) -> int:
    """The CRC of `data`."""
    return extend(0, data)
