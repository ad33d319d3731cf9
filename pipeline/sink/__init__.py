"""`format("ottla")` as a sink: rows become records, exactly once for a stream with a checkpoint."""

from ottla.pipeline.sink.options import SinkOptions, parse_sink_options
from ottla.pipeline.sink.rows import Shape, shape_of
from ottla.pipeline.sink.task import write_idempotent
from ottla.pipeline.sink.writers import BatchWriter, StreamWriter

__all__ = [
    "BatchWriter",
    "Shape",
    "SinkOptions",
    "StreamWriter",
    "parse_sink_options",
    "shape_of",
    "write_idempotent",
]
