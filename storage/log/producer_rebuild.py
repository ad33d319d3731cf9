"""Reading from the batches of a log what their producers did, where nothing else knows."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.kproto.records import iter_batches
from ottla.storage.errors import CorruptLogError
from ottla.storage.log.log_state import ProducerHistory
from ottla.storage.reading.plan import ReadableLog
from ottla.storage.reading.reader import Reader

__all__ = ["read_producers"]


async def read_producers(reader: Reader, log: ReadableLog, end_offset: int) -> ProducerHistory:
    """What the written batches say that end before an offset, from the log start on; damaged ones are passed over."""
    history = ProducerHistory()
    offset, end_offset = log.log_start_offset, min(end_offset, log.flushed_end_offset)
    while offset < end_offset:
        if offset < log.log_start_offset:
            # Retention has moved the start meanwhile. What is passed over may have ended transactions that were read.
            history, offset = ProducerHistory(), log.log_start_offset
            continue
        try:
            records, offset = await reader.read_batches(log, offset, end_offset)
        except CorruptLogError as error:
            if error.resumes_at <= offset:
                raise
            offset = error.resumes_at
            continue
        with records:
            await log.store.context.offload(_replay, history, list(records))
    return history


def _replay(history: ProducerHistory, views: Iterable[memoryview]) -> None:
    for view in views:
        for pos, header in iter_batches(view):
            history.replay(view[pos : pos + header.size_bytes], header)
