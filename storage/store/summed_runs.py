"""Which runs of a segment file were summed since they were written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.storage.disk.disk import Disk, Handle

__all__ = ["LEAST_SUMMED_BYTES", "SummedRuns"]

LEAST_SUMMED_BYTES: Final = 65_536
"""A shorter run is not remembered: to read it costs no more than to have it sent by the kernel."""

# More than the kernel reads ahead of what it is asked for.
_AROUND_BYTES: Final = 16 * 1_048_576
_BYTES_OF_PLACE: Final = 8 * LEAST_SUMMED_BYTES


class SummedRuns:
    """The runs of one file whose batches all had their checksum, in this process, since they were written.

    A file's runs do not overlap, and those that are remembered are not shorter than `LEAST_SUMMED_BYTES`, so no two
    begin in the same stretch of that length: one bit for each stretch is exact. That is 2 KiB for a file of 1 GiB.
    Bytes that were written are never written again, and a file that is rewritten is another one. But the page cache may
    lose them, and what is read from the disk again may be damaged. So `check` comes before each read from the device.
    """

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, position: int) -> None:
        """The run that begins there, which must be of `LEAST_SUMMED_BYTES` or more, was summed."""
        place, bit = divmod(position // LEAST_SUMMED_BYTES, 8)
        bits = self._bits
        if place >= len(bits):
            bits.extend(bytes(place + 1 - len(bits)))
        bits[place] |= 1 << bit

    def __contains__(self, position: int) -> bool:
        """Whether the run that begins there was summed."""
        place, bit = divmod(position // LEAST_SUMMED_BYTES, 8)
        return place < len(self._bits) and bool(self._bits[place] >> bit & 1)

    def check(self, disk: Disk, handle: Handle, position: int, length: int) -> None:
        """A range of the file is about to be read, if need be from the device. In any thread.

        If the page cache has lost any of it the runs around it are forgotten, since the kernel reads on beyond what it
        is asked for.
        """
        if self._bits and not disk.is_cached(handle, position, length):
            self._forget(position - _AROUND_BYTES, position + length + _AROUND_BYTES)

    def _forget(self, start: int, end: int) -> None:
        first = max(start, 0) // _BYTES_OF_PLACE
        bits = self._bits
        stop = min(len(bits), end // _BYTES_OF_PLACE + 1)
        bits[first:stop] = bytes(max(stop - first, 0))

    def forget(self) -> None:
        """What the file holds is no longer known."""
        self._bits = bytearray()
