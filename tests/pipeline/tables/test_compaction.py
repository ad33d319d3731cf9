"""When tables are compacted."""

from __future__ import annotations

import pytest

from ottla.pipeline.tables.compaction import Compaction


class CountedSink:
    compactions = 0

    def compact(self) -> None:
        self.compactions += 1


@pytest.mark.parametrize(
    ("every", "batches", "under_way", "in_all"), [(3, 2, 0, 1), (3, 3, 1, 1), (3, 7, 2, 3), (3, 0, 0, 0), (0, 9, 0, 0)]
)
def test_after_so_many_batches_and_at_the_end(every: int, batches: int, under_way: int, in_all: int) -> None:
    sink = CountedSink()
    compaction = Compaction(sink, every)  # type: ignore[arg-type]
    for _ in range(batches):
        compaction.written()
    assert sink.compactions == under_way
    compaction.finish()
    compaction.finish()
    assert sink.compactions == in_all
