"""The job of tables as an application of a cluster's `spark-submit`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.confluent import Confluent
from compat_tests.spark import session
from compat_tests.spark.tables.jobs import send
from ottla.pipeline.tables import sync

JOB = """
bootstrap = "{bootstrap}"
checkpoint = "{folder}/checkpoints"

[[tables]]
topic = "{topic}"
path = "{folder}/table"
"""


@pytest.mark.slow
def test_spark_submit_runs_a_job(
    spark: SparkSession, broker: BrokerProcess, reference: Confluent, topic: str, tmp_path: Path
) -> None:
    send(reference, topic, [{"id": n} for n in range(10)])
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(bootstrap=broker.bootstrap, folder=tmp_path, topic=topic))
    # Among them what keeps Delta from spreading its small log over 50 tasks; the master is the command's.
    words = [f"--conf={name}={value}" for name, value in session.SETTINGS.items()]
    done = subprocess.run(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            "--master=local[1]",
            f"--jars={session.jars()}",
            *words,
            str(sync.__file__),
            str(job),
            "--json",
        ],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    report = json.loads(line)
    assert (report["table"], report["rows"], report["lag"]) == (topic, 10, 0)
    table = spark.read.format("delta").load(str(tmp_path / "table"))
    assert sorted(row.id for row in table.collect()) == list(range(10))
