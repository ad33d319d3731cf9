"""Giving space back: which sealed segments go, which are written anew, and the exchange of old files for new ones."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.kproto.errors import ProtocolError
from ottla.storage.checkpoint import log_start_of
from ottla.storage.config import INT64_MAX
from ottla.storage.errors import CorruptLogError, StorageError
from ottla.storage.index_files import load_index
from ottla.storage.sealed_index import CorruptIndexError
from ottla.storage.segment_rewrite import Keep, SegmentRewrite

if TYPE_CHECKING:
    from ottla.storage.disk import Disk
    from ottla.storage.message_store import MessageStore
    from ottla.storage.segment import Segment

__all__ = ["keep_map", "may_change", "reclaim", "rewrite_segment"]

logger = logging.getLogger(__name__)

_SLICE = 1000
_STEP_BYTES = 1_048_576


class _Usage(NamedTuple):
    """What of a sealed segment is still needed."""

    live_bytes: int
    total_bytes: int
    entry_count: int
    has_marks: bool


async def keep_map(store: MessageStore) -> dict[bytes, Keep]:
    """Every partition that lives in the store, by log key, and from where on its records are wanted."""
    keep: dict[bytes, Keep] = {}
    for number, (key, state) in enumerate(list(store.snapshots.items())):
        if number % _SLICE == _SLICE - 1:
            await trio.lowlevel.checkpoint()
        keep[key] = Keep(log_start_of(state))
    for number, (key, log) in enumerate(list(store.logs.items())):
        if number % _SLICE == _SLICE - 1:
            await trio.lowlevel.checkpoint()
        keep[key] = Keep(log.log_start_offset)
    return keep


async def reclaim(store: MessageStore) -> None:
    """Remove the sealed segments of which nothing lives, and write anew those where it is worth it."""
    context = store.context
    config = context.config
    keep = await keep_map(store)
    # What says that records are dead must be durable before they go.
    await store.flush(sync=True)
    for segment in list(store.files.segments):
        if store.error is not None or not may_change(store, segment):
            continue
        is_oldest = store.files.segments[0] is segment
        usage = await context.offload(_usage, context.disk, segment, keep)
        if usage.live_bytes == 0 and (is_oldest or not usage.has_marks):
            exchange(store, segment, None)
            continue
        dead_ratio = 1 - usage.live_bytes / usage.total_bytes if usage.total_bytes else 0.0
        mean_run_bytes = usage.live_bytes / max(usage.entry_count, 1)
        is_scattered = not segment.is_sorted and mean_run_bytes < config.rewrite_mean_run_bytes
        if dead_ratio >= config.rewrite_dead_ratio or (is_scattered and usage.live_bytes):
            await rewrite_segment(store, segment, keep)


def may_change(store: MessageStore, segment: Segment) -> bool:
    """Whether a segment may be removed or written anew: it is sealed, and recovery would begin after it."""
    return segment.is_sealed and segment.position < store.recovery_position and segment in store.files.segments


def _usage(disk: Disk, segment: Segment, keep: Mapping[bytes, Keep]) -> _Usage:
    live = total = entries = 0
    has_marks = False
    for page in load_index(disk, segment).all_pages():
        total += page.size_bytes
        entries += page.entry_count
        kept = keep.get(page.key)
        if kept is not None:
            has_marks = has_marks or page.truncated_to < INT64_MAX
            if page.last_offset >= kept.log_start:
                live += page.size_bytes
    return _Usage(live, total, entries, has_marks)


async def rewrite_segment(store: MessageStore, segment: Segment, keep: Mapping[bytes, Keep]) -> bool:
    """Write a segment anew and exchange it; False if it is damaged, and stays as it is; StorageError on a full disk.

    It runs in small steps in a worker thread, at the cleaner's rate, and may be cancelled between them.
    """
    context = store.context
    config = context.config
    segment.pins += 1
    try:
        newer = store.files.segments[store.files.segments.index(segment) + 1 :]
        clipped = await context.offload(_clip, context.disk, newer, keep)
        await store.flush(sync=True)
        rewrite = SegmentRewrite(
            context.disk,
            segment,
            clipped,
            run_bytes=config.run_bytes,
            is_oldest=store.files.segments[0] is segment,
        )
        try:
            await context.offload(rewrite.open)
            read_bytes = _STEP_BYTES
            while read_bytes:
                read_bytes = await context.offload(rewrite.step, _STEP_BYTES)
                await trio.sleep(read_bytes / config.cleaner_io_max_bytes_per_second)
            replacement = await context.offload(rewrite.finish)
        except (ProtocolError, CorruptLogError, CorruptIndexError) as error:
            logger.error("%s: damaged, it cannot be written anew: %s", segment.data_path, error)  # noqa: TRY400
            return False
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise StorageError(f"no room to write {segment.data_path} anew") from error
        finally:
            rewrite.close()
        exchange(store, segment, replacement)
        return True
    finally:
        context.unpin_segment(segment)


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
            for page in load_index(disk, segment).all_pages():
                if page.truncated_to < INT64_MAX:
                    clip(page.key, page.truncated_to)
    return clipped


def exchange(store: MessageStore, old: Segment, new: Segment | None) -> None:
    """Let readers use the new segment from now on; the old files go when nobody reads them."""
    files = store.files
    place = files.segments.index(old)
    files.segments[place : place + 1] = [new] if new is not None else []
    files.layout_version += 1
    store.context.remove_segment(old)
