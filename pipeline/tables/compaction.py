"""When a table's small files are put together."""

from __future__ import annotations

from ottla.pipeline.tables.sinks import Sink

__all__ = ["Compaction"]


class Compaction:
    """Has a table compacted after every so many batches that were written into it; 0 is never."""

    def __init__(self, sink: Sink, every_batches: int) -> None:
        self._sink = sink
        self._every = every_batches
        self._batches = 0

    def written(self) -> None:
        """A batch is in the table."""
        self._batches += 1
        if self._every and self._batches >= self._every:
            self.finish()

    def finish(self) -> None:
        """No more batches come for now."""
        if self._every and self._batches:
            self._sink.compact()
            self._batches = 0
