"""The two parts of tiered logs, by offset: what the object store has, and what this node's disk has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console.layout import COLUMNS, MAX_ROWS
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.tiers.manifest import Manifest

__all__ = ["MAX_STRETCHES", "Stretch", "TiersRow", "tiers"]

MAX_STRETCHES: Final = 60
"""How many stretches a row has; of more segments several share one."""


class Stretch(NamedTuple):
    """Offsets in [first, end), and the columns that they take, which are fractions, too."""

    first_offset: int
    end_offset: int
    segments: int
    column: float
    width: float


class TiersRow(NamedTuple):
    """A partition: its offsets from the first to the end are all columns of the picture."""

    partition: int
    remote: list[Stretch]
    local: Stretch
    remote_bytes: int
    local_bytes: int


async def tiers(held: Sequence[Partition]) -> list[TiersRow]:
    """A row for each tiered partition of which this node knows the manifest, and which has an offset."""
    slices = TimeSlice()
    rows: list[TiersRow] = []
    for partition in sorted(held, key=lambda each: each.index):
        manifest = None if partition.remote is None else partition.remote.manifest
        first, end = partition.log_start_offset, partition.log.log_end_offset
        if manifest is None or first >= end or len(rows) == MAX_ROWS:
            continue
        remote: list[Stretch] = []
        each = -(-len(manifest) // MAX_STRETCHES) or 1
        for place in range(0, len(manifest), each):
            remote.append(_stretch(*_bounds(manifest, place, each), first, end))
            await slices.maybe_yield()
        local = _stretch(partition.log.log_start_offset, end, 0, first, end)
        rows.append(TiersRow(partition.index, remote, local, manifest.size_bytes, partition.log.size_bytes))
    return rows


def _bounds(manifest: Manifest, place: int, count: int) -> tuple[int, int, int]:
    """(first offset, end, how many) of some segments from a place on."""
    following = place + count
    end = manifest[following].base_offset if following < len(manifest) else manifest.end_offset
    return max(manifest[place].base_offset, manifest.log_start_offset), end, min(count, len(manifest) - place)


def _stretch(first_offset: int, end_offset: int, segments: int, first: int, end: int) -> Stretch:
    scale = COLUMNS / (end - first)
    column = (max(first_offset, first) - first) * scale
    return Stretch(
        first_offset, end_offset, segments, column, max(0.0, (min(end_offset, end) - first) * scale - column)
    )
