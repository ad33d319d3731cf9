"""Deriving the spans of logs from the index files of sealed segments."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import trio

from ottla.storage.disk.disk import Disk
from ottla.storage.disk.passing import RETRY_SECONDS, is_out_of_descriptors
from ottla.storage.reading.places import Span, clip_spans
from ottla.storage.reading.plan import ReadableLog
from ottla.storage.store.index_files import load_index
from ottla.storage.store.segment import Segment, pinned

__all__ = ["ensure_spans", "wait_for_spans"]

_MAX_WAITS: Final = 100


async def ensure_spans(logs: Sequence[ReadableLog]) -> None:
    """Derive the spans of these logs where they are no longer true; one worker-thread call for all.

    LogClosedError if the store of one of them is being closed.
    """
    for log in logs:
        if not log.store.files.has_sealed:
            log.places.found([], log.places.layout_version)
    while stale := [log for log in logs if not log.places.are_known]:
        stores = {log.store: tuple(log.store.files.segments) for log in stale}
        versions = {store: store.files.layout_version for store in stores}
        limits = [_limit(log) for log in stale]
        jobs = [(log.key, stores[log.store], limit) for log, limit in zip(stale, limits, strict=True)]
        context = stale[0].store.context
        with ExitStack() as inside:
            for store, segments in stores.items():
                inside.enter_context(store.gate)
                inside.enter_context(pinned(segments))
            found = await context.offload(_find_all, context.disk, jobs)
        for log, limit, spans in zip(stale, limits, found, strict=True):
            # A truncation meanwhile has lowered the limit; another layout means to do it again.
            now = _limit(log)
            log.places.found(clip_spans(reversed(spans), now) if now < limit else spans, versions[log.store])


async def wait_for_spans(log: ReadableLog) -> None:
    """As `ensure_spans` for one log, where nothing can be done without them: a lack of descriptors is waited out."""
    waits = _MAX_WAITS
    while True:
        try:
            return await ensure_spans([log])
        except OSError as error:
            if not is_out_of_descriptors(error) or not waits:
                raise
        waits -= 1
        log.store.context.shed_descriptors()
        await trio.sleep(RETRY_SECONDS)


def _limit(log: ReadableLog) -> int:
    return log.places.sealed_limit(log.log_end_offset)


def _find_all(disk: Disk, jobs: Sequence[tuple[bytes, Sequence[Segment], int]]) -> list[list[Span]]:
    return [_find(disk, key, segments, limit) for key, segments, limit in jobs]


def _find(disk: Disk, key: bytes, segments: Sequence[Segment], limit: int) -> list[Span]:
    """A partition's spans, newest segment first. Blocks."""
    found: list[Span] = []
    for segment in reversed(segments):
        if not segment.is_sealed:
            continue
        index = load_index(disk, segment)
        pages = index.find_pages(key)
        if not pages:
            continue
        records = [index.page(place) for place in pages]
        base_offset, last_offset = records[0].base_offset, min(records[-1].last_offset, limit - 1)
        if base_offset <= last_offset:
            size_bytes = sum(page.size_bytes for page in records)
            found.append(Span(segment, base_offset, last_offset, records[-1].max_timestamp_ms, size_bytes, pages))
            limit = base_offset
        limit = min(limit, records[0].truncated_to)
    found.reverse()
    return found
