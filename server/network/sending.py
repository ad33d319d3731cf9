"""Cutting the parts of an answer into pieces for one send each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.storage.reading.file_range import FileRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.codec import Buffer, Part

__all__ = ["MAX_FILE_BYTES", "MAX_SEND_BYTES", "MAX_SEND_VIEWS", "next_group", "rest_of"]

MAX_SEND_VIEWS: Final = 1024
MAX_SEND_BYTES: Final = 512 * 1024
"""One send copies at memory speed: this much stays well under the 500 µs for which the loop may be held."""

MAX_FILE_BYTES: Final = 1024 * 1024
"""The same of a range of a file, which is not copied."""


def rest_of(views: Sequence[Buffer], sent_bytes: int) -> Sequence[Buffer]:
    """The rest of the views after so many bytes have been sent."""
    rest = []
    for view in views:
        if sent_bytes < len(view):
            rest.append(memoryview(view)[sent_bytes:])
        sent_bytes = max(0, sent_bytes - len(view))
    return rest


def next_group(parts: Sequence[Part], first: int, offset: int) -> tuple[Sequence[Buffer], int]:
    """The views that one send takes from `offset` bytes into part `first` on, and their size in bytes.

    The first is a view, and the group ends before a part that is not.
    """
    group: list[Buffer] = []
    size_bytes = 0
    for part in parts[first : first + MAX_SEND_VIEWS]:
        if isinstance(part, FileRange):
            break
        piece = memoryview(part)[offset : offset + MAX_SEND_BYTES - size_bytes]  # type: ignore[arg-type]
        offset = 0
        group.append(piece)
        size_bytes += len(piece)
        if size_bytes >= MAX_SEND_BYTES:
            break
    return group, size_bytes
