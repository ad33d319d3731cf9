"""What a job says of single records of a batch: that they are rejected, or released to be delivered again.

The job says it in Spark's driver, the source acknowledges in a process beside it: a folder on the driver's disk is
between them. It belongs to the query as its checkpoint does, because a batch may be acknowledged by the query's next
run only.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.pipeline.errors import OptionError, PipelineError
from ottla.pipeline.share.session import Outcome
from ottla.pipeline.tables.local_files import replace_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

__all__ = ["OutcomeFolder", "Outcomes", "RecordKey"]

_WORDS: Final = {"accept": Outcome.ACCEPT, "release": Outcome.RELEASE, "reject": Outcome.REJECT}
_LOCK: Final = "lock"
_OUTCOME: Final = "outcome"
_PATTERN: Final = "batch-*.json"


class RecordKey(NamedTuple):
    """One delivery of one record."""

    topic: str
    partition: int
    offset: int
    delivery_count: int


class Outcomes:
    """For jobs, inside `foreachBatch`: says which rows of the batch are not accepted.

    `folder` is that of the source's option `outcomes`.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def record(self, rows: DataFrame, batch_id: int, column: str = "outcome") -> None:
        """Note the outcome of each row: `reject`, `release`, or `accept`, which null means too.

        The rows have the source's columns topic, partition, offset and deliveryCount. Rows that are left out are
        accepted. Called again for the same batch, it replaces what was said before. PipelineError if no running query
        reads this folder, since its records would all be accepted.
        """
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        self._refuse_unread()
        self._note(rows, batch_id, F.col(column), f"Column {column}")

    def decide(self, rows: DataFrame, batch_id: int, function: Callable[[Row], str | None]) -> None:
        """Call a function with each row, on the executors, and note what it returns as the row's outcome.

        It returns what `record` takes in a column, and otherwise this is `record`. It is called once for each row, and
        again for the rows of a task that Spark repeats. An error of the function is an error of the batch: nothing is
        acknowledged, and the query ends.
        """
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        self._refuse_unread()
        # Of a function that always gives the same, Spark's optimizer makes two where its result is looked at twice.
        # And it takes a function with type hints for another kind of function.
        called = F.udf(lambda row: function(row), "string").asNondeterministic()
        self._note(rows, batch_id, called(F.struct("*")), "The function's outcome")

    def _refuse_unread(self) -> None:
        with _locked(self._folder) as is_free:
            if is_free:
                raise PipelineError(
                    f"No query reads outcomes from {self._folder}, so that all its records would be accepted: give "
                    "the source the option outcomes with this folder."
                )

    def _note(self, rows: DataFrame, batch_id: int, outcome: Column, what: str) -> None:
        """Keep the outcomes that are not `accept`. `what` names where they come from, in errors."""
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        said = rows.select("topic", "partition", "offset", "deliveryCount", outcome.alias(_OUTCOME))
        entries: list[list[Any]] = []
        for row in said.where(F.col(_OUTCOME).isNotNull() & (F.col(_OUTCOME) != "accept")).collect():
            word = row[_OUTCOME]
            if word not in _WORDS:
                raise PipelineError(f"{what} is {word!r}: write one of {', '.join(_WORDS)}, or null.")
            entries.append([row.topic, row.partition, row.offset, row.deliveryCount, word])
        replace_text(self._folder / f"batch-{batch_id:020}.json", json.dumps(entries))


class OutcomeFolder:
    """For the source: reads what the job has said. It owns the folder from `open` to `close`."""

    def __init__(self, folder: str | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._lock: Any = None
        self._older: list[Path] = []

    def open(self) -> None:
        """Keep others out; OptionError if another query has the folder."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        file = (self._folder / _LOCK).open("a")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise OptionError(
                f"Another query reads outcomes from {self._folder}: give each query a folder of its own."
            ) from None
        self._lock = file

    def read(self) -> dict[RecordKey, Outcome]:
        """What was said of the last batch."""
        found: dict[RecordKey, Outcome] = {}
        for path in self._files()[-1:]:
            try:
                for topic, partition, offset, count, word in json.loads(path.read_text(encoding="utf-8")):
                    found[RecordKey(topic, partition, offset, count)] = _WORDS[word]
            except (KeyError, TypeError, ValueError) as error:
                raise PipelineError(f"{path} is not what Outcomes.record wrote: {error}.") from None
        return found

    def begin_batch(self) -> None:
        """A batch begins: what is there was said of earlier ones."""
        self._older = self._files()

    def forget_older(self) -> None:
        """Remove what was said of earlier batches than the last.

        What was said of the last is kept until the checkpoint is past it. The next run would take a record that was
        released for one that is to be accepted.
        """
        for path in self._older:
            with suppress(FileNotFoundError):
                path.unlink()
        self._older = []

    def close(self) -> None:
        """Let others have the folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _files(self) -> list[Path]:
        return [] if self._folder is None else sorted(self._folder.glob(_PATTERN))


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Whether nobody has the folder."""
    try:
        file = (folder / _LOCK).open("a")
    except FileNotFoundError:
        yield True
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
