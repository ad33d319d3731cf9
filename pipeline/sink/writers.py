"""`df.write.format("ottla")` and `df.writeStream.format("ottla")`, as Spark calls them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.sink.commit import abort_batch, abort_micro_batch, commit_batch, commit_micro_batch
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.row_batches import as_batches
from ottla.pipeline.sink.rows import Shape
from ottla.pipeline.sink.task import Attempt, write_idempotent, write_in_transaction, write_micro_batch

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0 hands streams over row by row.
    from pyspark.sql.datasource import DataSourceStreamWriter as DataSourceStreamArrowWriter  # type: ignore[assignment]

__all__ = ["BatchWriter", "StreamWriter"]

# What Spark's streams say to their tasks; the query's id is made with its checkpoint.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"

Messages = list[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """Rows are sent while tasks run. In transactions they are committed when all tasks are done, else never."""

    def __init__(self, options: SinkOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """One task's rows."""
        task = _context().partitionId()
        if self._options.is_transactional:
            return write_in_transaction(self._options, self._shape, self._run, task, iterator)
        return write_idempotent(self._options, self._shape, task, iterator)

    def commit(self, messages: Messages) -> None:
        commit_batch(self._options, messages)

    def abort(self, messages: Messages) -> None:
        abort_batch(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Each micro-batch is committed once, however often Spark repeats it; see `decision` for how."""

    def __init__(self, options: SinkOptions, shape: Shape, schema: StructType) -> None:
        self._options = options
        self._shape = shape
        self._schema = StructType([field for field in schema.fields if field.name in shape.columns])

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """One task's part of a micro-batch."""
        if DataSourceStreamArrowWriter.__name__ == "DataSourceStreamWriter":
            iterator = as_batches(iterator, self._schema)
        context = _context()
        task = context.partitionId()
        if not self._options.is_transactional:
            return write_idempotent(self._options, self._shape, task, iterator)
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise PipelineError("This Spark does not tell tasks their query and batch: set transactional to false.")
        return write_micro_batch(self._options, self._shape, Attempt(query, int(batch), task), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        commit_micro_batch(self._options, messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        abort_micro_batch(self._options, messages, batchId)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "outside of a task"
    return context
