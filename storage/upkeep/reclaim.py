"""Giving space back: which sealed segments go, which are rewritten or merged, and the exchange of their files."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

import trio

from ottla.kproto.errors import ProtocolError
from ottla.runtime.time_slice import TimeSlice, chunks
from ottla.storage.config import INT64_MAX
from ottla.storage.disk.disk import Disk
from ottla.storage.errors import CorruptLogError, StorageError
from ottla.storage.format.checkpoint import log_start_of
from ottla.storage.format.sealed_index import CorruptIndexError, IndexPage, SealedIndex
from ottla.storage.log.partition_log import logs_of
from ottla.storage.store.index_files import load_index
from ottla.storage.store.maintenance import list_sealed_segments
from ottla.storage.store.message_store import MessageStore
from ottla.storage.store.segment import Segment, pinned
from ottla.storage.upkeep.ending_store import ending_store
from ottla.storage.upkeep.segment_rewrite import Keep, SegmentRewrite

__all__ = ["keep_map", "may_change", "reclaim", "rewrite_segments"]

_STEP_BYTES = 1_048_576
_SPARE_BYTES = 67_108_864


class _Usage(NamedTuple):
    """What of a sealed segment is still needed."""

    live_bytes: int
    total_bytes: int
    entry_count: int
    has_marks: bool


async def keep_map(store: MessageStore) -> dict[bytes, Keep]:
    """Every partition that lives in the store, by log key, and from where on its records are wanted."""
    keep: dict[bytes, Keep] = {}
    time_slice = TimeSlice()
    for some in chunks(list(store.snapshots.items())):
        await time_slice.maybe_yield()
        keep.update((key, Keep(log_start_of(state))) for key, state in some)
    for logs in chunks(logs_of(store)):
        await time_slice.maybe_yield()
        keep.update((log.key, Keep(log.log_start_offset)) for log in logs if not log.is_closed)
    return keep


async def reclaim(store: MessageStore) -> None:
    """Remove the sealed segments of which nothing lives, and rewrite those where it is worth it."""
    context = store.context
    config = context.config
    # Chosen first: of what is sealed later, `keep` need not know every partition.
    segments = [segment for segment in store.files.segments if may_change(store, segment)]
    keep = await keep_map(store)
    # What says that records are dead must be durable before they go.
    await store.writer.flush(sync=True)
    worth_rewriting: list[tuple[Segment, int]] = []
    for segment in segments:
        if not store.is_usable or not may_change(store, segment):
            continue
        is_oldest = store.files.segments[0] is segment
        usage = await context.offload(_usage, context.disk, segment, keep)
        if usage.live_bytes == 0 and (is_oldest or not usage.has_marks):
            exchange(store, [segment], None)
            continue
        dead_ratio = 1 - usage.live_bytes / usage.total_bytes if usage.total_bytes else 0.0
        mean_run_bytes = usage.live_bytes / max(usage.entry_count, 1)
        is_scattered = not segment.is_sorted and mean_run_bytes < config.rewrite_mean_run_bytes
        if segment.is_lost:
            continue
        if dead_ratio >= config.rewrite_dead_ratio or (is_scattered and usage.live_bytes):
            worth_rewriting.append(
                (segment, usage.live_bytes if dead_ratio >= config.rewrite_dead_ratio else INT64_MAX)
            )
    await list_sealed_segments(store)
    # What takes room comes after what gives it.
    if context.space.is_full:
        # Those of which least is left give most for the room that they need.
        for segment, live_bytes in sorted(worth_rewriting, key=itemgetter(1)):
            if store.is_usable and may_change(store, segment) and await context.space.find_room(live_bytes):
                await rewrite_segments(store, [segment], keep, live_bytes=live_bytes)
                await list_sealed_segments(store)
            if not context.space.is_full:
                break
        return
    for segment, _ in worth_rewriting:
        if store.is_usable and may_change(store, segment):
            await rewrite_segments(store, [segment], keep)
    await _merge_small(store)
    await list_sealed_segments(store)


def may_change(store: MessageStore, segment: Segment) -> bool:
    """Whether a segment may be removed or rewritten: it is sealed, and recovery would begin after it."""
    return segment.is_sealed and segment.position < store.recovery_position and segment in store.files.segments


def _usage(disk: Disk, segment: Segment, keep: Mapping[bytes, Keep]) -> _Usage:
    live = total = entries = 0
    has_marks = False
    index = load_index(disk, segment)
    for page in index.all_pages():
        total += page.size_bytes
        entries += page.entry_count
        kept = keep.get(page.key)
        # A deleted partition may be made again: the mark of its end keeps what older segments hold of it void.
        has_marks = has_marks or page.truncated_to == 0
        if kept is not None:
            has_marks = has_marks or page.truncated_to < INT64_MAX
            if page.base_offset >= kept.log_start:
                live += page.size_bytes
            elif page.last_offset >= kept.log_start:
                live += _bytes_from(disk, segment, index, page, kept.log_start)
    return _Usage(live, total, entries, has_marks)


def _bytes_from(disk: Disk, segment: Segment, index: SealedIndex, page: IndexPage, offset: int) -> int:
    """The bytes of a page's runs that reach this offset; all of them if the page is damaged."""
    handle = disk.open_read(segment.index_path)
    try:
        table = index.read_page(disk, handle, page)
    except CorruptIndexError:
        return page.size_bytes
    finally:
        disk.close(handle)
    return table.bytes_of(table.find_offset(offset), len(table))


async def rewrite_segments(
    store: MessageStore, segments: Sequence[Segment], keep: Mapping[bytes, Keep], *, live_bytes: int | None = None
) -> bool:
    """Rewrite segments that follow each other as one, and exchange them. On a full disk `live_bytes` are what is left
    of them, and the room for that was found.

    False if one is damaged, and all stay as they are; StorageError on a full disk. It runs in small steps in a worker
    thread, at the cleaner's rate, and may be cancelled between them.
    """
    context = store.context
    config = context.config
    needed_bytes = sum(segment.size_bytes for segment in segments) + _SPARE_BYTES if live_bytes is None else live_bytes
    if await context.offload(context.disk.free_bytes, store.files.directory) < needed_bytes:
        # Not to the last byte: an append that finds no room stops the store.
        raise StorageError(f"no room to rewrite {segments[0].data_path}: {needed_bytes} bytes must be free")
    with pinned(segments):
        place = store.files.segments.index(segments[0])
        newer = store.files.segments[place + 1 :]
        kept = await context.offload(_keep_of_each, context.disk, segments, newer, keep)
        await store.writer.flush(sync=True)
        rewrite = SegmentRewrite(
            context.disk,
            list(zip(segments, kept, strict=True)),
            run_bytes=config.run_bytes,
            # Files of retired segments come back if the process ends before the list without them is written.
            is_oldest=place == 0 and not store.files.retired,
        )
        try:
            await context.offload(rewrite.open)
            read_bytes = _STEP_BYTES
            while read_bytes:
                read_bytes = await context.offload(rewrite.step, _STEP_BYTES)
                await trio.sleep(read_bytes / config.cleaner_io_max_bytes_per_second)
            replacement = await context.offload(rewrite.finish)
        except (ProtocolError, CorruptLogError, CorruptIndexError, FileNotFoundError) as error:
            path = segments[0].data_path
            context.damage.found(path, -1, f"{path} is damaged and cannot be rewritten: {error}")
            return False
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise StorageError(f"no room to rewrite {segments[0].data_path}") from error
        finally:
            # Ends when the disk has closed the files and removed what was begun.
            with trio.CancelScope(shield=True):
                await context.offload(rewrite.close)
        exchange(store, segments, replacement)
        return True


def _keep_of_each(
    disk: Disk, segments: Sequence[Segment], newer: Sequence[Segment], keep: Mapping[bytes, Keep]
) -> list[dict[bytes, Keep]]:
    """For each segment what truncations in those after it leave of each partition; `newer` follow the first. Blocks."""
    clipped = _clip(disk, newer[len(segments) - 1 :], keep)
    kept = [clipped]
    for segment in reversed(segments[1:]):
        clipped = _clip(disk, [segment], clipped)
        kept.append(clipped)
    kept.reverse()
    return kept


def _clip(disk: Disk, newer: Sequence[Segment], keep: Mapping[bytes, Keep]) -> dict[bytes, Keep]:
    """What later truncations leave of each partition."""
    clipped = dict(keep)

    def clip(key: bytes, truncated_to: int) -> None:
        kept = clipped.get(key)
        if kept is not None and truncated_to - 1 < kept.last_offset:
            clipped[key] = Keep(kept.log_start, truncated_to - 1, kept.clean)

    for segment in newer:
        tables = segment.tables
        if tables is not None:
            for key, table in list(tables.items()):
                clip(key, table.truncated_to)
        else:
            for key, truncated_to in load_index(disk, segment).marks:
                clip(key, truncated_to)
    return clipped


def exchange(store: MessageStore, old: Sequence[Segment], new: Segment | None) -> None:
    """Let readers use the new segment from now on; the old files go when nobody reads them.

    Those that nothing replaces go with the next list of segments: see `list_sealed_segments`.
    """
    with ending_store(store):
        store.files.exchange(old, new)
    if new is not None:
        for segment in old:
            store.doomed.doom(segment)


# Merging.


async def _merge_small(store: MessageStore) -> None:
    """Make one of rewritten segments that follow each other and together are no larger than one may be.

    What is left of segments after compaction and retention would else be many small files, each with its index.
    """
    segments = [segment for segment in store.files.segments if segment.is_sorted and may_change(store, segment)]
    if len(segments) < 2:
        return
    keep = await keep_map(store)
    counts = await store.context.offload(_count_entries, store.context.disk, segments)
    segments = [segment for segment in segments if segment in store.files.segments]
    for group in _groups(store, segments, counts):
        if store.is_usable and all(may_change(store, segment) for segment in group):
            await rewrite_segments(store, group, keep)


def _count_entries(disk: Disk, segments: Sequence[Segment]) -> list[int]:
    return [load_index(disk, segment).entry_count for segment in segments]


def _groups(store: MessageStore, segments: Sequence[Segment], counts: Sequence[int]) -> list[list[Segment]]:
    """The segments that shall become one. Each is at most two thirds of its group, so that no byte is merged often.

    Where records expire, those merged began within `segment.ms`: retention gives up a segment's part as a whole.
    """
    limit_bytes, limit_ms = store.roll_limits()
    if not any(log.config.delete for log in logs_of(store)):
        limit_ms = INT64_MAX
    limit_entries = store.context.config.segment_index_entries
    places = {segment: place for place, segment in enumerate(store.files.segments)}
    groups: list[list[Segment]] = []
    first = 0
    while first < len(segments):
        size_bytes = entries = largest = 0
        end = best = first
        while end < len(segments):
            segment = segments[end]
            size_bytes += segment.size_bytes
            entries += counts[end]
            largest = max(largest, segment.size_bytes)
            is_next = places[segment] - places[segments[first]] == end - first
            span_ms = segment.created_at_ms - segments[first].created_at_ms
            if size_bytes > limit_bytes or entries > limit_entries or span_ms > limit_ms or not is_next:
                break
            end += 1
            if 2 * size_bytes >= 3 * largest:
                best = end
        if best - first > 1:
            groups.append(list(segments[first:best]))
        first = max(best, first + 1)
    return groups
