"""Runs a job: all tables of one file in one Spark session, watched until they are done or one fails."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from ottla.pipeline.client import Cluster
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.tables import preflight
from ottla.pipeline.tables.checkpoint import Identity
from ottla.pipeline.tables.config import JobConfig, load
from ottla.pipeline.tables.failures import passes, sentence
from ottla.pipeline.tables.progress import BatchReport, Counts, Metrics, as_line
from ottla.pipeline.tables.session import session
from ottla.pipeline.tables.sync import TableSync

__all__ = ["main", "run"]

_WATCH_INTERVAL_S: Final = 0.25
_PAUSE_S: Final = 5.0
"""Between a query's failure and its next start; twice as long each time that it comes to no batch."""
_STARTS: Final = 6
"""How often a query is started without coming to a batch, before its error is the job's."""

Say = Callable[[str], None]


def main(arguments: Sequence[str]) -> int:
    """As `spark-submit` calls it: the file's name and, if wanted, --json."""
    parser = argparse.ArgumentParser(prog="sync.py", description="Keep tables in step with topics.")
    parser.add_argument("config", help="the TOML file that declares the job")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each batch")
    given = parser.parse_args(arguments)
    try:
        run(load(given.config), as_json=given.json, say=lambda line: print(line, flush=True))  # noqa: T201
    except PipelineError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def run(job: JobConfig, *, say: Say, as_json: bool = False, spark: SparkSession | None = None) -> None:
    """Bring all tables up to date and return; with the trigger `continuous` go on until SIGINT or SIGTERM.

    Raises PipelineError, with a sentence, for everything that a person can put right. What was written stays written:
    the next run goes on from there.
    """
    cluster = preflight.connect(job)
    if cluster is not None:
        cluster.topic_names()  # Spark takes seconds to start, the broker's absence shows at once.
    spark = spark or session(job)
    watch = _Watch(cluster, say, as_json, Metrics(job.metrics) if job.metrics else None)
    syncs = [TableSync(spark, job, table) for table in job.tables]
    with ExitStack() as locks:
        for sync in syncs:
            locks.enter_context(sync.checkpoint.locked())
        _keep(cluster, syncs, watch)


def _keep(cluster: Cluster | None, syncs: Sequence[TableSync], watch: _Watch) -> None:
    """Run the queries of tables whose checkpoints nobody else has."""
    running: list[_Running] = []
    with ExitStack() as closing:
        if cluster is not None:
            closing.callback(cluster.close)
        for sync in syncs:
            closing.callback(sync.close)
        identities = [preflight.check(cluster, sync.table, sync.checkpoint, sync.sink) for sync in syncs]
        try:
            with _stopped_by_signals() as stopped:
                for sync, identity in zip(syncs, identities, strict=True):
                    running.append(_Running(cluster, sync, identity))
                _await_end(running, watch, stopped)
        finally:
            for table in running:
                table.query.stop()
        for sync in syncs:
            sync.finish()


class _Running:
    """A table's query. It is started again where Spark gave up for a reason that passes."""

    def __init__(self, cluster: Cluster | None, sync: TableSync, identity: Identity) -> None:
        self.sync = sync
        self._cluster = cluster
        self._identity = identity
        self._starts_left = _STARTS
        self._last_batch = sync.last_batch
        self.query = self._start()

    def is_done(self, stopped: threading.Event) -> bool:
        """Whether it came to its end; PipelineError, which says why, if that was not the end of the topic."""
        if self.sync.last_batch != self._last_batch:
            self._last_batch, self._starts_left = self.sync.last_batch, _STARTS
        if self.query.isActive:
            return False
        error = self.query.exception()
        if error is None:
            return True
        if not passes(error) or self._starts_left == 0:
            raise self._reason(error) from error
        if stopped.wait(_PAUSE_S * 2 ** (_STARTS - 1 - self._starts_left)):
            return True
        self.query = self._start()
        return False

    def _reason(self, error: Exception) -> PipelineError:
        """What would keep the job from starting now says best why it failed."""
        if isinstance(self.sync.failure, PipelineError):
            return self.sync.failure
        try:
            preflight.check(self._cluster, self.sync.table, self.sync.checkpoint, self.sync.sink)
        except PipelineError as reason:
            return reason
        return sentence(self.sync.table, self.sync.failure or error)

    def _start(self) -> StreamingQuery:
        self._starts_left -= 1
        return self.sync.start(self._identity)


def _await_end(running: list[_Running], watch: _Watch, stopped: threading.Event) -> None:
    left = list(running)
    while left and not stopped.is_set():
        for table in list(left):
            query = table.query
            if table.is_done(stopped):
                left.remove(table)
            watch.look(table.sync, query)
        stopped.wait(_WATCH_INTERVAL_S if left else 0)
    for table in left:
        table.query.stop()
        watch.look(table.sync, table.query)


class _Watch:
    """Says each batch once."""

    def __init__(self, cluster: Cluster | None, say: Say, as_json: bool, metrics: Metrics | None) -> None:
        self._cluster = cluster
        self._say = say
        self._as_json = as_json
        self._metrics = metrics

    def look(self, sync: TableSync, query: StreamingQuery) -> None:
        """Say what has been written since the last look. A batch is done when Spark has noted that it is."""
        if not sync.counts:
            return
        for progress in _since(query, min(sync.counts)):
            if (counts := sync.counts.pop(progress["batchId"], None)) is None:
                continue
            name, seconds = sync.table.name, progress["batchDuration"] / 1000
            lag = self._lag(sync, progress)
            report = BatchReport(name, progress["batchId"], counts.rows, counts.dead, lag, seconds)
            if counts != Counts(0, 0):
                self._say(as_line(report, as_json=self._as_json))
            if self._metrics is not None:
                self._metrics.add(report)

    def _lag(self, sync: TableSync, progress: object) -> int | None:
        try:
            ends = progress["sources"][0]["endOffset"]  # type: ignore[index]
            # JSON, or before Spark 4.2 what Python writes: with numbers and texts alone one can be read as the other.
            positions = (literal_eval(ends) if isinstance(ends, str) else ends)[sync.table.topic]
            return None if self._cluster is None else preflight.lag(self._cluster, sync.table.topic, positions)
        except (KeyError, SyntaxError, TypeError, ValueError, PipelineError):
            return None  # A number to look at; the query itself says what is wrong with the broker.


def _since(query: StreamingQuery, batch: int) -> Sequence[StreamingQueryProgress]:
    """What Spark says of this batch and of later ones that it has done.

    It writes out all that it remembers, a hundred batches, each time that it is asked for more than the last one.
    """
    last = query.lastProgress
    if last is None or last["batchId"] < batch:
        return ()
    found = (last,) if last["batchId"] == batch else query.recentProgress
    # It also tells, under the number of the batch that comes next, that there was nothing to do.
    return [progress for progress in found if "addBatch" in progress["durationMs"]]


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM end the job between two looks; outside the main thread nobody is asked."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    previous = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
