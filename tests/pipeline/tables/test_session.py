"""The settings of a session that a job starts for itself."""

from __future__ import annotations

import os
import shutil
import subprocess

import pyspark
import pytest

from ottla.pipeline.tables import config
from ottla.pipeline.tables.errors import JobError
from ottla.pipeline.tables.session import own_settings

SHUFFLES = "spark.sql.shuffle.partitions"
LOG_TASKS = "spark.databricks.delta.snapshotPartitions"
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/java")
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    monkeypatch.setenv("SPARK_AUTH_SOCKET_TIMEOUT", "120")
    monkeypatch.delenv("SPARK_HOME", raising=False)


def settings(**spark: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in spark.items()}
    job = {"bootstrap": "127.0.0.1:9092", "tables": [{"topic": "t", "path": "lake/t"}], "spark": named}
    return own_settings(config.parse(job))


@pytest.mark.parametrize("master", [{}, {"spark_master": "local[2]"}])
def test_one_machine_gets_few_tasks(master: dict[str, str]) -> None:
    found = settings(**master)
    assert (found[SHUFFLES], found[LOG_TASKS]) == (str(2 * (os.cpu_count() or 1)),) * 2


def test_a_cluster_gets_what_spark_thinks_right() -> None:
    assert {SHUFFLES, LOG_TASKS, JAVA_OPTIONS}.isdisjoint(settings(spark_master="spark://here:7077"))


def test_the_file_has_the_last_word() -> None:
    assert settings(spark_sql_shuffle_partitions="7")[SHUFFLES] == "7"


def test_a_jvm_starts_with_the_options_for_one_machine() -> None:
    """And takes what it does not know: options come and go with Java's versions."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("Java is not installed")
    options = settings()[JAVA_OPTIONS].split()
    done = subprocess.run(
        [java, *options, "-XX:Tier9Anything=1", "-XX:+PrintFlagsFinal", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    flags = {words[1]: words[3] for line in done.stdout.splitlines() if len(words := line.split()) > 3}
    assert flags["Tier4InvocationThreshold"] == "500000"


def test_the_files_own_options_of_the_jvm_come_last() -> None:
    """Spark puts these behind its default ones."""
    found = settings(spark_driver_extraJavaOptions="-Dmine=1")
    assert found["spark.driver.extraJavaOptions"] == "-Dmine=1"
    assert "Tier4" in found[JAVA_OPTIONS]


def test_a_spark_whose_packages_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta is what a table is by default, and pip installs the newest Spark."""
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    with pytest.raises(JobError, match=r"for Spark 4\.3\.0: .* or install pyspark 4\.2\.\*"):
        settings()
    assert settings(spark_jars_packages="io.delta:own")["spark.jars.packages"] == "io.delta:own"
