"""What a person is told of a query that failed, out of what Spark says of it."""

from __future__ import annotations

import re
from typing import Final

from pyspark.errors import PySparkException

from ottla.pipeline.errors import DataLossError, PipelineError
from ottla.pipeline.tables.config import TableConfig
from ottla.pipeline.tables.errors import JobError

__all__ = ["passes", "sentence"]

# A broker or a catalogue that restarts; and Spark waits only seconds for its Python processes, which a busy machine may
# not keep.
_PASSING: Final = re.compile(
    "BrokerUnavailableError|TimeoutException|Python worker failed to connect back|CANNOT_OPEN_SOCKET"
    "|CommitFailedException|CommitStateUnknownException|ServiceUnavailableError"
    r"|requests\.exceptions\.(ConnectionError|ConnectTimeout|ReadTimeout|ChunkedEncodingError)"
)

_DATA_LOSS: Final = re.compile(r"(?i)data ?loss|aged out|OffsetOutOfRange|partitions? .*(gone|missing)")
_APPENDIX: Final = re.compile(r"=== Streaming Query ===|^JVM stacktrace:", re.MULTILINE)
_CONDITION: Final = re.compile(r"\[[A-Z0-9_.]+\] ")
_RAISED: Final = re.compile(r"[\w.]*(Error|Exception): ")
_LONGEST: Final = 500


def passes(failure: Exception) -> bool:
    """Whether the query may well come through if it is started again: the batch is then repeated."""
    return _PASSING.search(str(failure)) is not None


def sentence(table: TableConfig, failure: Exception) -> PipelineError:
    """The error of a table's job: `failure` is what a batch raised, or how Spark says that the query ended."""
    text = str(failure)
    if _DATA_LOSS.search(text):
        return DataLossError(
            f"Records of topic {table.topic!r} that table {table.name!r} needs are gone: retention removed them, "
            'or the topic was created again. Write on_data_loss = "continue" to go on from what is left.'
        )
    return JobError(f"Table {table.name!r} failed: {_told(_message(failure) or text)}")


def _message(failure: Exception) -> str:
    """What Spark says of its error, without the stack; nothing where it does not know."""
    if not isinstance(failure, PySparkException):
        return ""
    try:
        return failure.getMessage() or ""
    except Exception:  # noqa: BLE001 - Spark has texts for its own conditions only, and none for Delta's
        return ""


def _told(text: str) -> str:
    text = _APPENDIX.split(text, maxsplit=1)[0]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    if not lines:
        return "no reason was given"
    raised = [line for line in lines if _RAISED.match(line)]
    if not raised and _CONDITION.match(lines[0]):  # an error of Spark's or Delta's, written to be read
        return " ".join(lines)[:_LONGEST]
    return re.sub(r"^ottla\.[\w.]+: ", "", (raised or lines)[-1])[:_LONGEST]
