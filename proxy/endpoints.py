"""Finds out whether a Produce or Fetch response names brokers (KIP-951), without making objects of it.

It does so only if a leader has changed, in a tagged field at its very end, and everything before that has to be walked
through. Each walk stops after every CHUNK_ELEMENTS partitions, because a response may have many thousands.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.compiler.runtime import read_uvarint
from ottla.kproto.errors import DecodeError
from ottla.proxy.heads import skip_tags
from ottla.runtime.time_slice import CHUNK_ELEMENTS

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer

Walk = Generator[None, None, bool]

FIRST_VERSIONS: Final = {ApiKey.PRODUCE: 10, ApiKey.FETCH: 16}
"""The versions from which on they may."""

_FIRST_VERSION_WITH_IDS: Final = 13
_UUID_BYTES: Final = 16
_FIXED_BYTES: Final = 30
"""Of a partition, in both: index, error code, and three offsets or times."""
_ABORTED_BYTES: Final = 16
_THROTTLE_BYTES: Final = 4
_FETCH_START_BYTES: Final = 10
"""Throttle time, error code, session."""


def walk(key: ApiKey, version: int, frame: Buffer, pos: int) -> Walk:
    """Steps to the answer: whether there are tagged fields at the end of the response whose body begins at `pos`.

    Raises DecodeError for anything that is not such a response.
    """
    try:
        found = yield from _WALKS[key](version, frame, pos)
    except (struct.error, IndexError) as error:
        raise DecodeError(f"the {key.name} response is malformed: {error}") from error
    return found


def _produce(version: int, frame: Buffer, pos: int) -> Walk:
    topics, pos = read_uvarint(frame, pos)
    walked = 0
    for _ in range(topics - 1):
        pos = pos + _UUID_BYTES if version >= _FIRST_VERSION_WITH_IDS else _skip_compact(frame, pos)
        partitions, pos = read_uvarint(frame, pos)
        for _ in range(partitions - 1):
            errors, pos = read_uvarint(frame, pos + _FIXED_BYTES)
            for _ in range(errors - 1):
                pos = skip_tags(frame, _skip_compact(frame, pos + 4))
            pos = skip_tags(frame, _skip_compact(frame, pos))
            walked += 1
            if walked % CHUNK_ELEMENTS == 0:
                yield
        pos = skip_tags(frame, pos)
    return bool(frame[pos + _THROTTLE_BYTES])


def _fetch(version: int, frame: Buffer, pos: int) -> Walk:
    assert version >= _FIRST_VERSION_WITH_IDS
    topics, pos = read_uvarint(frame, pos + _FETCH_START_BYTES)
    walked = 0
    for _ in range(topics - 1):
        partitions, pos = read_uvarint(frame, pos + _UUID_BYTES)
        for _ in range(partitions - 1):
            aborted, pos = read_uvarint(frame, pos + _FIXED_BYTES)
            for _ in range(aborted - 1):
                pos = skip_tags(frame, pos + _ABORTED_BYTES)
                walked += 1
                if walked % CHUNK_ELEMENTS == 0:
                    yield
            pos = skip_tags(frame, _skip_compact(frame, pos + 4))
            walked += 1
            if walked % CHUNK_ELEMENTS == 0:
                yield
        pos = skip_tags(frame, pos)
    return bool(frame[pos])


def _skip_compact(frame: Buffer, pos: int) -> int:
    """The position after a compact string, or compact bytes; null is its length alone."""
    size, pos = read_uvarint(frame, pos)
    return pos + max(0, size - 1)


_WALKS: Final[dict[ApiKey, Callable[[int, Buffer, int], Walk]]] = {ApiKey.PRODUCE: _produce, ApiKey.FETCH: _fetch}
