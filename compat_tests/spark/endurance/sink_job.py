"""The job that `sink_kill_loop` kills: a stream from topic to topic, by `format("ottla")` at both ends.

    python -m compat_tests.spark.endurance.sink_job BOOTSTRAP SOURCE TARGET CHECKPOINT [--until-caught-up]

Its rows are dealt to tasks at random, so that a batch that is repeated is never divided as it was. It says a line for
each batch that is done.
"""

from __future__ import annotations

import argparse
import time

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from compat_tests.spark import session
from ottla.pipeline.source import OttlaDataSource

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "3",
}
RECORDS_A_BATCH = 3_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("bootstrap")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("checkpoint")
    parser.add_argument("--until-caught-up", action="store_true")
    arguments = parser.parse_args()
    spark = session.start(SETTINGS, with_jars=False)
    spark.dataSource.register(OttlaDataSource)
    options = {"kafka.bootstrap.servers": arguments.bootstrap}
    limit = 1_000_000 if arguments.until_caught_up else RECORDS_A_BATCH
    rows = (
        spark.readStream.format("ottla")
        .options(**options, subscribe=arguments.source, startingOffsets="earliest", maxOffsetsPerTrigger=limit)
        .load()
    )
    writer = (
        rows.select("key", "value")
        .repartition(3, F.rand())
        .writeStream.format("ottla")
        .options(**options, topic=arguments.target, checkpointLocation=arguments.checkpoint)
    )
    query = writer.trigger(
        **({"availableNow": True} if arguments.until_caught_up else {"processingTime": "0 seconds"})
    ).start()
    seen = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress.batchId > seen and progress.numInputRows:
            seen = progress.batchId
            print(f"batch {seen}: {progress.numInputRows} rows", flush=True)
        time.sleep(0.05)
    query.awaitTermination()


if __name__ == "__main__":
    main()
