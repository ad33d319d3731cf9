"""The job that `share_spark_kill_loop` kills: a query on a share group, in Spark, which works on it by a function.

    python -m compat_tests.spark.endurance.share_job BOOTSTRAP TOPIC GROUP FOLDER [--die MOMENT]

It takes what is available and ends. With a MOMENT it ends itself and its JVM with kill -9 there, in its second batch:

- `unacknowledged`: Spark has committed the first batch, and the source is about to acknowledge it
- `unplanned`: the first batch is acknowledged and the second one acquired, and Spark has not written that down
- `uncommitted`: the second batch is in the sink, its outcomes are said, and Spark has not committed it

The sink has each batch under its number: a batch that is repeated takes the place of what was there.
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any, Final, Literal

from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from compat_tests.spark import session
from compat_tests.spark.endurance.sink_job import SETTINGS
from ottla.pipeline.share import Outcomes, ShareDataSource
from ottla.pipeline.share.options import parse_share_options
from ottla.pipeline.share.stream import ShareStreamReader
from ottla.pipeline.source.admission import ReadLimit

__all__ = ["MOMENTS", "RECORDS_A_BATCH", "outcome_of", "sink_of"]

Moment = Literal["unacknowledged", "unplanned", "uncommitted"]

MOMENTS: Final[tuple[Moment, ...]] = ("unacknowledged", "unplanned", "uncommitted")
RECORDS_A_BATCH: Final = 100
_DIE: Final = "die"


def outcome_of(value: int, delivery_count: int) -> str | None:
    """What the job says of a record: some are never good, and some are good the second time only."""
    if value % 10 == 7:
        return "reject"
    return "release" if value % 10 == 3 and delivery_count == 1 else None


def sink_of(folder: Path) -> Path:
    """Where the rows of all batches are."""
    return folder / "sink"


class MortalReader(ShareStreamReader):
    """The source's own reader, until its moment has come."""

    def __init__(self, options: dict[str, str], moment: str) -> None:
        super().__init__(parse_share_options(options))
        self._moment = moment

    def latestOffset(self, start: Any, limit: ReadLimit) -> Any:  # noqa: N802 - Spark's name
        is_second = self._last is not None and start == self._last
        if is_second and self._moment == "unacknowledged":
            die()
        end = super().latestOffset(start, limit)
        if is_second and end != start and self._moment == "unplanned":
            die()
        return end

    def commit(self, end: Any) -> None:
        if end == self._last and self._moment == "unacknowledged":
            die()
        super().commit(end)


class MortalDataSource(ShareDataSource):
    """`ottla-share`, with the option `die`."""

    def streamReader(self, schema: StructType) -> ShareStreamReader:  # noqa: N802 - Spark's name
        options = {name: value for name, value in self.options.items() if name != _DIE}
        return MortalReader(options, self.options.get(_DIE, ""))


def die() -> None:
    """kill -9 of the driver, of its JVM and of what plans the stream, which are one group of processes."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--die", choices=MOMENTS, default="")
    arguments = parser.parse_args()
    folder, moment = arguments.folder, arguments.die
    outcomes = Outcomes(folder / "outcomes")
    done = 0

    def decided(row: Row) -> str | None:
        return outcome_of(int(row.value), row.deliveryCount)

    def work(rows: DataFrame, batch: int) -> None:
        nonlocal done
        table = rows.selectExpr("partition", "offset", "INT(STRING(value)) AS value", "deliveryCount")
        table.coalesce(1).write.mode("overwrite").parquet(str(sink_of(folder) / f"batch={batch}"))
        outcomes.decide(rows, batch, decided)
        done += 1
        if done == 2 and moment == "uncommitted":
            die()

    spark = session.start(SETTINGS, with_jars=False)
    spark.dataSource.register(MortalDataSource)
    rows = (
        spark.readStream.format("ottla-share")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("kafka.group.id", arguments.group)
        .option("subscribe", arguments.topic)
        .option("outcomes", str(folder / "outcomes"))
        .option("maxRecordsPerTrigger", RECORDS_A_BATCH)
        .option(_DIE, moment)
        .load()
    )
    writer = rows.writeStream.foreachBatch(work).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
