"""A large Fetch answer is looked through while its bytes go on, and is never held whole.

If a leader has changed, such an answer names brokers in a tagged field at its very end (KIP-951). By then everything
before it has been sent, including the length of the whole, so there is no room for other addresses. So the field is
turned into one that clients do not know, and emptied; they then ask for metadata, as they do when nobody names the new
leader.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from ottla.kproto.errors import DecodeError
from ottla.runtime.time_slice import CHUNK_ELEMENTS

HIDDEN_TAG: Final = 127
"""Takes the place of a hidden tag: no client knows it, and it takes one byte as well."""

_ENDPOINTS_TAG: Final = 0
_MAX_SHIFT: Final = 28

_HEAD_BYTES: Final = 8  # length, correlation id
_START_BYTES: Final = 10  # throttle time, error code, session
_TOPIC_BYTES: Final = 16  # its id
_PARTITION_BYTES: Final = 30  # index, error code, three offsets
_ABORTED_BYTES: Final = 16  # producer id, first offset
_REPLICA_BYTES: Final = 4

Walk = Generator[int, int, int]


class LongFetch:
    """One Fetch answer of version 16 or higher. `look` gets all of it piece by piece, from its length on."""

    def __init__(self) -> None:
        self._walk = self._varints()
        self._gap = next(self._walk)  # bytes to pass over
        self._value = self._shift = 0  # what has come of a number
        self._ends = False
        self._hides_number = self._hides_gap = False

    @property
    def is_done(self) -> bool:
        """Whether its end has been seen."""
        return self._ends and not self._gap

    def look(self, piece: memoryview) -> Iterator[None]:
        """Look through the next piece, and hide what names brokers; stops after every CHUNK_ELEMENTS numbers.

        Raises DecodeError.
        """
        pos = numbers = 0
        while True:
            if self._gap:
                step = min(self._gap, len(piece) - pos)
                if self._hides_gap:
                    piece[pos : pos + step] = bytes(step)
                self._gap -= step
                pos += step
            if pos == len(piece):
                return
            if self._ends:
                raise DecodeError("the FETCH response does not end where it should")
            byte = piece[pos]
            pos += 1
            self._value |= (byte & 0x7F) << self._shift
            if byte & 0x80:
                self._shift += 7
                if self._shift > _MAX_SHIFT:
                    raise DecodeError("the FETCH response is malformed: a number that does not end")
                continue
            self._take_number()
            if self._hides_number:
                piece[pos - 1] = HIDDEN_TAG
                self._hides_number = False
            numbers += 1
            if numbers % CHUNK_ELEMENTS == 0:
                yield

    def _take_number(self) -> None:
        value, self._value, self._shift = self._value, 0, 0
        try:
            self._gap = self._walk.send(value)
        except StopIteration as end:
            self._gap = end.value
            self._ends = True

    def _varints(self) -> Walk:
        """Yields how many bytes it is to the next number of variable length, and is sent it; returns the rest."""
        gap = yield from _tags(_HEAD_BYTES)
        topics = yield gap + _START_BYTES
        gap = 0
        for _ in range(topics - 1):
            partitions = yield gap + _TOPIC_BYTES
            gap = 0
            for _ in range(partitions - 1):
                aborted = yield gap + _PARTITION_BYTES
                gap = 0
                for _ in range(aborted - 1):
                    gap = yield from _tags(gap + _ABORTED_BYTES)
                size = yield gap + _REPLICA_BYTES
                gap = yield from _tags(max(0, size - 1))
            gap = yield from _tags(gap)
        count = yield gap
        gap = 0
        for _ in range(count):
            tag = yield gap
            self._hides_number = self._hides_gap = tag == _ENDPOINTS_TAG
            gap = yield 0
        return gap


def _tags(gap: int) -> Walk:
    """Walk over the tagged fields that begin this many bytes further on; returns how many bytes the last one has."""
    count = yield gap
    gap = 0
    for _ in range(count):
        yield gap
        gap = yield 0
    return gap
