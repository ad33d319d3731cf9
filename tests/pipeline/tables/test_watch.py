"""What a running job says of its batches, and what it asks Spark for that."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from ottla.pipeline.tables.progress import Counts
from ottla.pipeline.tables.runner import _Watch


class Query:
    """What Spark remembers of a query; `written` is how many batches it had to write out."""

    def __init__(self) -> None:
        self.written = 0
        self._remembered: list[dict[str, Any]] = []

    def has_done(self, batch: int) -> None:
        self._remembered.append({"batchId": batch, "batchDuration": 1500, "durationMs": {"addBatch": 1000}})

    def has_found_nothing(self, next_batch: int) -> None:
        self._remembered.append({"batchId": next_batch, "batchDuration": 7, "durationMs": {"latestOffset": 7}})

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        self.written += 1
        return self._remembered[-1] if self._remembered else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        self.written += len(self._remembered)
        return self._remembered[-100:]


class Job:
    """A table, its query, and who looks at them."""

    def __init__(self) -> None:
        self.query = Query()
        self.counts: dict[int, Counts] = {}
        self.said: list[tuple[int, int, float]] = []
        self._sync: Any = SimpleNamespace(counts=self.counts, table=SimpleNamespace(name="orders", topic="orders"))
        self._watch = _Watch(None, self._say, as_json=True, metrics=None)

    def look(self) -> list[tuple[int, int, float]]:
        """The batches that are said now, each with its rows and seconds."""
        self.said.clear()
        query: Any = self.query
        self._watch.look(self._sync, query)
        return list(self.said)

    def _say(self, line: str) -> None:
        report = json.loads(line)
        self.said.append((report["batch"], report["rows"], report["seconds"]))


def test_each_batch_is_said_once_when_spark_has_noted_it() -> None:
    job = Job()
    job.counts[0] = Counts(5, 0)
    assert job.look() == []
    job.query.has_done(0)
    assert job.look() == [(0, 5, 1.5)]
    assert job.look() == []
    for batch in (1, 2, 3):
        job.counts[batch] = Counts(batch, 0)
        job.query.has_done(batch)
    assert job.look() == [(1, 1, 1.5), (2, 2, 1.5), (3, 3, 1.5)]


def test_a_look_without_records_is_not_the_batch_that_comes_next() -> None:
    job = Job()
    job.query.has_found_nothing(0)
    job.counts[0] = Counts(5, 0)
    assert job.look() == []
    job.query.has_done(0)
    assert job.look() == [(0, 5, 1.5)]


def test_spark_is_not_asked_for_what_was_said() -> None:
    job = Job()
    for batch in range(100):
        job.counts[batch] = Counts(1, 0)
        job.query.has_done(batch)
        job.look()
    assert job.query.written <= 200
    job.query.written = 0
    for _ in range(1000):
        job.look()
    assert job.query.written == 0
