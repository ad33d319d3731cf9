"""The table jobs that the scenarios share."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.spark.tables.jobs import Tables
from compat_tests.spark.topics import FORMATS


@pytest.fixture(params=FORMATS, ids=list(FORMATS.values()))
def tables(spark: SparkSession, broker: BrokerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Tables:
    """Table jobs, by the connector and by the source without a jar."""
    return Tables(spark, broker.bootstrap, tmp_path, request.param)
