"""A table job that is ended with kill -9 three times; `make table-kill-loop` does it twenty times."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.spark.endurance.kill_loop import faults, run, tables_in


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_job_ends_with_every_row_once(spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path) -> None:
    sent, code = run(own_broker, tmp_path, kills=3, source="ottla", seed=8)
    assert code == 0, (tmp_path / "job.log").read_text()[-3000:]
    assert sent.numbers
    assert faults(tables_in(spark, tmp_path), sent) == []
