"""One task of a scan, as it is sent to an executor."""

from __future__ import annotations

from typing import NamedTuple

from ottla.pipeline.client import TopicPartition
from ottla.storage.inspect.segment_reader import Piece

__all__ = ["Scan"]


class Scan(NamedTuple):
    """A piece of a partition, of which the offsets in [`start`, `end`) are wanted.

    `aborted` are the aborted transactions (producer id, first offset, the marker's offset) that reach into it.
    """

    partition: TopicPartition
    piece: Piece
    start: int
    end: int
    aborted: tuple[tuple[int, int, int], ...]
