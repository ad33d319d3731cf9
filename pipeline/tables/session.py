"""The Spark session of a job that is run by itself, not by `spark-submit`."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from ottla.pipeline.interpreter import quick_interpreter
from ottla.pipeline.tables.config import JobConfig
from ottla.pipeline.tables.errors import JobError

__all__ = ["DELTA_PACKAGES", "KAFKA_PACKAGES", "own_settings", "session"]

DELTA_PACKAGES: Final = ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
KAFKA_PACKAGES: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
_PACKAGES_SPARK: Final = "4.2."
"""The version that these are for: others have others."""
_DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_LATER: Final = 100
_LATE_COMPILATION: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",  # of a JVM that has others
    f"-XX:Tier4InvocationThreshold={_LATER * 5_000}",
    f"-XX:Tier4MinInvocationThreshold={_LATER * 600}",
    f"-XX:Tier4CompileThreshold={_LATER * 15_000}",
    f"-XX:Tier4BackEdgeThreshold={_LATER * 40_000}",
)
"""Let HotSpot's second compiler wait a hundred times as long as it does by default.

In a job of a minute it took a quarter of the CPU to compile what was over then. What runs for each record reaches these
numbers too, within a few hundred thousand of them.
"""


def session(job: JobConfig) -> SparkSession:
    """The session that runs already (spark-submit, a notebook), or a new one by the file's [spark] settings.

    A job with Delta tables, or on Spark's connector, asks Spark to fetch their packages unless the file or the machine
    names archives itself.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder
    # Under spark-submit the settings are those of its command, and the JVM runs already.
    settings = dict(job.spark) if "PYSPARK_GATEWAY_PORT" in os.environ else own_settings(job)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise JobError(
            "Spark did not start; its messages are above. It needs Java 17 (JAVA_HOME), and a network for "
            "packages, unless [spark] names files in spark.jars."
        ) from error


def own_settings(job: JobConfig) -> dict[str, str]:
    """The settings of a session that this process starts: what the job needs, and then what its file says.

    JobError if there is no Java.
    """
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise JobError("Spark needs Java 17, which is not installed here: install it, or set JAVA_HOME.")
    is_local = job.spark.get("spark.master", "local").startswith("local") and "SPARK_HOME" not in os.environ
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = quick_interpreter() if is_local else sys.executable
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "120")  # The same patience here as of the JVM's.
    return {
        "spark.app.name": "ottla table",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.authenticate.socketTimeout": "2m",
        **(_for_one_machine() if is_local else {}),
        **packages(job),
        **job.spark,
    }


def _for_one_machine() -> dict[str, str]:
    """Spark divides each shuffle into 200 tasks, and Delta each look at a table's log into 50.

    That is meant for a cluster. Here the tasks themselves are most of the work of a small batch.
    """
    tasks = str(2 * (os.cpu_count() or 1))
    return {
        "spark.sql.shuffle.partitions": tasks,
        "spark.databricks.delta.snapshotPartitions": tasks,
        # The file's own spark.driver.extraJavaOptions come after these, and add to them.
        "spark.driver.defaultJavaOptions": " ".join(_LATE_COMPILATION),
    }


def packages(job: JobConfig) -> dict[str, str]:
    """The settings that fetch what the job needs beyond PyPI."""
    needed: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    if any(table.format == "delta" for table in job.tables):
        needed += DELTA_PACKAGES
        settings |= _DELTA_SETTINGS
    if job.source == "kafka":
        needed += KAFKA_PACKAGES
    given = {"spark.jars", "spark.jars.packages"} & job.spark.keys()
    if needed and not given and "PYSPARK_SUBMIT_ARGS" not in os.environ:
        if not pyspark.__version__.startswith(_PACKAGES_SPARK):
            raise JobError(
                f"Delta tables and source kafka need packages for Spark {pyspark.__version__}: name them in [spark] as "
                f'"spark.jars.packages", or install pyspark {_PACKAGES_SPARK}*, whose packages are known. Parquet and '
                "Iceberg tables with source ottla need none."
            )
        settings["spark.jars.packages"] = ",".join(needed)
    return settings
