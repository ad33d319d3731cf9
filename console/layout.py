"""The layout of a topic's bytes: how much of each stretch of its store's segment files belongs to each partition."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.runtime.time_slice import TimeSlice
from ottla.storage.errors import StorageError
from ottla.storage.store.index_files import load_index
from ottla.storage.store.segment import pinned

if TYPE_CHECKING:
    from ottla.storage.disk import Disk
    from ottla.storage.format.run_table import RunTable
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.store.message_store import MessageStore
    from ottla.storage.store.segment import Segment

COLUMNS: Final = 180
MAX_SEGMENTS: Final = 24
MAX_ROWS: Final = 24
SHADES: Final = 5
_MAX_RUNS: Final = 256
"""How many runs of one partition in one segment are looked at; if there are more, an even sample of them."""


class Cell(NamedTuple):
    """A stretch of columns with one shade, from 1 (a little of it is the partition's) to `SHADES` (all of it)."""

    column: int
    width: int
    shade: int


class Row(NamedTuple):
    partition: int
    cells: list[Cell]
    size_bytes: int


class SegmentView(NamedTuple):
    """A segment, and the columns that it takes in the picture."""

    name: str
    size_bytes: int
    run_count: int
    created_at_ms: int
    is_sealed: bool
    is_sorted: bool
    column: int
    width: int


class Layout(NamedTuple):
    """A store's picture: a row for each partition, columns for the bytes of its segments, oldest first."""

    directory: str
    segments: list[SegmentView]
    rows: list[Row]
    size_bytes: int
    hidden_segments: int
    hidden_partitions: int


class _Job(NamedTuple):
    """One partition in one segment: its runs if they are in memory, else a worker thread finds them."""

    segment: Segment
    key: bytes
    runs: list[tuple[float, float]] | None
    column: int
    width: int


async def picture(logs: Sequence[PartitionLog]) -> Layout | None:
    """The picture of partitions that share a store; None if nothing has been written yet. Waits for the disk."""
    store: MessageStore = logs[0].store
    segments = list(store.files.segments)[-MAX_SEGMENTS:]
    if not segments:
        return None
    places = _columns([segment.size_bytes for segment in segments])
    shown = sorted(logs, key=lambda log: log.partition)[:MAX_ROWS]
    context = store.context
    with store.gate, pinned(segments):
        jobs = await _jobs(shown, segments, places)
        cells = await context.offload(_draw, context.disk, jobs, _capacity(segments, places))
    rows = [Row(log.partition, drawn, log.size_bytes) for log, drawn in zip(shown, cells, strict=True)]
    views = [
        SegmentView(
            os.path.basename(segment.data_path),
            segment.size_bytes,
            segment.run_count,
            segment.created_at_ms,
            segment.is_sealed,
            segment.is_sorted,
            *place,
        )
        for segment, place in zip(segments, places, strict=True)
    ]
    return Layout(
        os.path.basename(os.path.dirname(store.files.directory)),
        views,
        rows,
        store.files.size_bytes,
        len(store.files.segments) - len(segments),
        len(logs) - len(shown),
    )


async def _jobs(
    logs: Sequence[PartitionLog], segments: Sequence[Segment], places: Sequence[tuple[int, int]]
) -> list[list[_Job]]:
    """A list of jobs for each log. Looks at what is in memory here, because that may change while a thread reads."""
    slices = TimeSlice()
    jobs: list[list[_Job]] = []
    for log in logs:
        jobs.append([])
        for segment, place in zip(segments, places, strict=True):
            runs = None
            if segment.tables is not None:
                table = segment.tables.get(log.key)
                runs = [] if table is None else list(_sample(table, 1))
            jobs[-1].append(_Job(segment, log.key, runs, *place))
            if slices.is_over:
                await slices.maybe_yield()
    return jobs


def _columns(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Divide the picture's columns among segments by their size, at least one each: (first column, count)."""
    total = sum(sizes) or 1
    widths = [max(1, round(size * COLUMNS / total)) for size in sizes]
    while sum(widths) > COLUMNS:
        widths[widths.index(max(widths))] -= 1
    widths[widths.index(max(widths))] += COLUMNS - sum(widths)
    places = []
    column = 0
    for width in widths:
        places.append((column, width))
        column += width
    return places


def _capacity(segments: Sequence[Segment], places: Sequence[tuple[int, int]]) -> list[float]:
    """The bytes that each column stands for."""
    return [
        segment.size_bytes / width for segment, (_, width) in zip(segments, places, strict=True) for _ in range(width)
    ]


def _draw(disk: Disk, jobs: Iterable[Iterable[_Job]], capacity: Sequence[float]) -> list[list[Cell]]:
    """The cells of each partition. Blocks."""
    rows = []
    for row in jobs:
        weights = [0.0] * COLUMNS
        for job in row:
            for position, length in _runs(disk, job):
                _spread(weights, job, position, length)
        rows.append(_cells(weights, capacity))
    return rows


def _runs(disk: Disk, job: _Job) -> Iterable[tuple[float, float]]:
    """The (position, length) of a partition's runs in a segment; a sample of them if there are many."""
    if job.runs is not None:
        yield from job.runs
        return
    try:
        index = load_index(disk, job.segment)
        pages = index.find_pages(job.key)
        every = max(1, len(pages) // 4)
        handle = disk.open_read(job.segment.index_path)
        try:
            for place in pages[::every]:
                yield from _sample(index.read_page(disk, handle, index.page(place)), every)
        finally:
            disk.close(handle)
    except (OSError, StorageError):
        return  # show the rest: reads and fsck report what is wrong with the file


def _sample(table: RunTable, stands_for: int) -> Iterable[tuple[float, float]]:
    every = max(1, len(table) // _MAX_RUNS)
    for number in range(0, len(table), every):
        entry = table[number]
        yield entry.position, entry.length * every * stands_for


def _spread(weights: list[float], job: _Job, position: float, length: float) -> None:
    """Add a run's bytes to the columns that it lies in."""
    size = job.segment.size_bytes / job.width
    end = min(position + length, job.segment.size_bytes)
    last_column = min(int(end / size), job.width - 1)
    for column in range(int(position / size), last_column + 1):
        covered = min(end, (column + 1) * size) - max(position, column * size)
        weights[job.column + column] += max(0.0, covered)


def _cells(weights: Sequence[float], capacity: Sequence[float]) -> list[Cell]:
    """Stretches of columns with the same shade; empty ones are left out."""
    cells: list[Cell] = []
    for column, (weight, full) in enumerate(zip(weights, capacity, strict=True)):
        if weight <= 0:
            continue
        shade = max(1, min(SHADES, round(weight / full * SHADES)))
        last = cells[-1] if cells else None
        if last is not None and last.shade == shade and last.column + last.width == column:
            cells[-1] = last._replace(width=last.width + 1)
        else:
            cells.append(Cell(column, 1, shade))
    return cells
