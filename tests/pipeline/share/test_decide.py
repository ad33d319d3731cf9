"""Outcomes that a function of the job decides."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.share.outcomes import OutcomeFolder, Outcomes, RecordKey
from ottla.pipeline.share.session import Outcome

pytestmark = [
    pytest.mark.java,
    # pyspark leaves the sockets of its gateway and of its workers to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What pyspark left open is collected here, where its warnings are expected, and not in another test."""
    yield
    gc.collect()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[OutcomeFolder]:
    """As a running query has it."""
    held = OutcomeFolder(str(tmp_path))
    held.open()
    yield held
    held.close()


def batch(spark: SparkSession, count: int = 5) -> DataFrame:
    return spark.range(count).selectExpr(
        "binary(string(id)) AS value", "'jobs' AS topic", "0 AS partition", "id AS offset", "1 AS deliveryCount"
    )


def test_each_row_once(spark: SparkSession, folder: OutcomeFolder, tmp_path: Path) -> None:
    """As often as the outcome is looked at, the function has worked on each record once."""
    calls = spark.sparkContext.accumulator(0)

    def decided(row: Row) -> str | None:
        calls.add(1)
        return {b"1": "reject", b"2": "release", b"3": "accept"}.get(bytes(row.value))

    Outcomes(tmp_path).decide(batch(spark), 7, decided)

    assert folder.read() == {
        RecordKey("jobs", 0, 1, 1): Outcome.REJECT,
        RecordKey("jobs", 0, 2, 1): Outcome.RELEASE,
    }
    assert calls.value == 5


def test_what_is_no_outcome_is_a_sentence(spark: SparkSession, folder: OutcomeFolder, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="The function's outcome is 'retry': write one of accept, release, reject"):
        Outcomes(tmp_path).decide(batch(spark), 0, lambda row: "retry")


def test_an_error_of_the_function_says_nothing_of_any_record(
    spark: SparkSession, folder: OutcomeFolder, tmp_path: Path
) -> None:
    """What was said of the batch before is left as it was."""
    (tmp_path / f"batch-{0:020}.json").write_text(json.dumps([["jobs", 0, 9, 1, "reject"]]))

    with pytest.raises(Exception, match="no such shelf"):
        Outcomes(tmp_path).decide(batch(spark), 1, failing)

    assert folder.read() == {RecordKey("jobs", 0, 9, 1): Outcome.REJECT}


def failing(row: Row) -> str | None:
    raise LookupError("no such shelf")
