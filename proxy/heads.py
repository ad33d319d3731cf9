"""The parts of a frame that forwarding needs: the request's API, and whether it will be answered."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.compiler.runtime import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.types import Buffer

REQUEST_HEAD: Final = struct.Struct(">ihhi")
"""The size of the frame, the API's key, its version, the correlation id."""
RESPONSE_HEAD: Final = struct.Struct(">ii")
"""The size of the frame, the correlation id."""
MIN_REQUEST_BYTES: Final = REQUEST_HEAD.size - 4
MIN_RESPONSE_BYTES: Final = RESPONSE_HEAD.size - 4

_INT16: Final = struct.Struct(">h")
_FIRST_VERSION_WITH_TRANSACTIONS: Final = 3


def has_answer(buf: Buffer, pos: int, end: int, version: int) -> bool | None:
    """Whether a Produce request is answered, which it is not with acks=0; None if too little of it has arrived.

    `pos` is the position after the correlation id.
    """
    flexible = ApiKey.PRODUCE.is_flexible(version)
    try:
        (length,) = _INT16.unpack_from(buf, pos)  # the client id
        pos += 2 + max(0, length)
        if flexible:
            pos = skip_tags(buf, pos)
        if version >= _FIRST_VERSION_WITH_TRANSACTIONS:
            if flexible:
                size, pos = read_uvarint(buf, pos)
                pos += max(0, size - 1)
            else:
                (length,) = _INT16.unpack_from(buf, pos)
                pos += 2 + max(0, length)
        if pos + _INT16.size > end:
            return None
        return bool(_INT16.unpack_from(buf, pos)[0])
    except (struct.error, IndexError):
        return None


def skip_tags(buf: Buffer, pos: int) -> int:
    """The position after the tagged fields that begin at `pos`."""
    count, pos = read_uvarint(buf, pos)
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > len(buf):
            raise IndexError(pos)
    return pos


def framed(*parts: Buffer) -> Sequence[Buffer]:
    """A frame made of these parts."""
    return [struct.pack(">i", sum(map(len, parts))), *parts]
