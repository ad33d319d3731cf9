"""The one Spark session of a test run: it takes seconds to start, so everybody shares it.

Spark runs in local mode on two threads, with the archives that `make jars` lays into .jars/spark: Spark's Kafka
connector and Delta Lake. The sources of `ottla.pipeline`, which need none, are registered in it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark.sql import SparkSession

from ottla.pipeline.interpreter import quick_interpreter
from ottla.pipeline.segments import SegmentsDataSource
from ottla.pipeline.source import OttlaDataSource

ROOT: Final = Path(__file__).resolve().parents[2]
JARS: Final = ROOT / ".jars" / "spark"

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    # Fifteen seconds are not enough for a Python process to start on a busy machine.
    "spark.python.authenticate.socketTimeout": "2m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta spreads its log over 50 tasks: for tables of a few files that is all of the time.
    "spark.databricks.delta.snapshotPartitions": "1",
}


def missing() -> str | None:
    """Why Spark cannot run here with its connector; None if it can."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not (JARS / ".complete").exists():
        return "Spark's Kafka connector and Delta Lake are not there: run `make jars` (it needs Maven)"
    return None


def jars() -> str:
    """The archives as `spark.jars` wants them."""
    return ",".join(str(path) for path in sorted(JARS.glob("*.jar")))


def start(
    settings: Mapping[str, str] = MappingProxyType({}), *, threads: int = 2, with_jars: bool = True
) -> SparkSession:
    """A session of its own settings, for a process that has none yet (benchmarks, jobs)."""
    # Workers run this interpreter, and find the repository's modules as this process does.
    os.environ["PYSPARK_PYTHON"] = quick_interpreter()
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "120")
    warehouse = tempfile.mkdtemp(prefix="spark-warehouse-")
    builder = SparkSession.builder.master(f"local[{threads}]").config("spark.sql.warehouse.dir", warehouse)
    known = SETTINGS | ({"spark.jars": jars()} if with_jars else {})
    if not with_jars:
        known = {name: value for name, value in known.items() if "delta" not in value.lower()}
    for name, value in (known | dict(settings)).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@lru_cache(maxsize=1)
def shared() -> SparkSession:
    """The session that all tests of this process share; it ends with the process.

    Its queries are small and each is run once: compiling them well takes longer than running them.
    """
    spark = start(
        {
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.adaptive.enabled": "false",
        }
    )
    spark.dataSource.register(OttlaDataSource)
    spark.dataSource.register(SegmentsDataSource)
    return spark
