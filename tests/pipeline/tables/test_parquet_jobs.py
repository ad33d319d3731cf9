"""Several jobs on one Parquet table, such as that of their dead letters, and files that somebody takes away."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.pipeline.tables.errors import TableError
from ottla.pipeline.tables.parquet import ParquetSink
from tests.pipeline.tables.test_parquet import DyingFileSystem, KilledError, append, numbers, open_sink

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_killed_batch_outlives_a_batch_of_another_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job dies between its commit and the moves; before it runs again, another one writes."""
    with monkeypatch.context() as patch:
        patch.setattr("ottla.pipeline.tables.parquet.FileSystem", DyingFileSystem)
        patch.setattr(DyingFileSystem, "before", True)
        # What was staged before is removed, the manifest is written, a file is moved.
        patch.setattr(DyingFileSystem, "left", 3)
        with pytest.raises(KilledError):
            append(open_sink(spark, tmp_path), spark, 0, "first")
    assert list(tmp_path.glob("_ottla/commits/first/*.json"))
    assert not list(tmp_path.glob("*.parquet"))

    append(open_sink(spark, tmp_path), spark, 1, "second")
    append(open_sink(spark, tmp_path), spark, 0, "first")

    assert numbers(spark, tmp_path) == list(range(20))


def test_two_jobs_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with open_sink(spark, tmp_path) as first:
        first.append(spark.range(3).selectExpr("id AS n"), "first", 0)
        with open_sink(spark, tmp_path) as second:
            changes: list[tuple[Any, ...]] = [
                (second.append, spark.range(3, 5).selectExpr("id AS n"), "second", 0),
                (second.compact,),
                (second.recover,),
            ]
            for change, *arguments in changes:
                with pytest.raises(TableError, match=r"Another job that runs now writes into the table .* wait until"):
                    change(*arguments)
    append(open_sink(spark, tmp_path), spark, 1, "second")

    assert numbers(spark, tmp_path) == [0, 1, 2, *range(10, 20)]


def test_staged_files_that_somebody_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is not in the table because its manifest is there."""

    def staged(self: ParquetSink, *arguments: Any) -> Any:
        manifest = stage(self, *arguments)
        shutil.rmtree(manifest["staging"].removeprefix("file:"))
        return manifest

    stage = ParquetSink._stage
    monkeypatch.setattr(ParquetSink, "_stage", staged)

    with pytest.raises(TableError, match=r"whose rows belong into the table .* is gone"):
        append(open_sink(spark, tmp_path), spark, 0)


def test_partitions_of_any_text(spark: SparkSession, tmp_path: Path) -> None:
    """A folder's name is made of the text, and a file must be found in it again."""
    texts = ["a b", "50%", "%41", "a:b", "a/b", "ü", "x=y", "a#b?c", "[1]", "{2}", "\\", "'\"", "..", "*", "\x01", None]
    rows = spark.createDataFrame(list(enumerate(texts)), "n INT, side STRING")

    with open_sink(spark, tmp_path, ["side"]) as sink:
        for batch in range(3):
            sink.append(rows, "app", batch)
        sink.compact()

    read = spark.read.schema("n INT, side STRING").parquet(str(tmp_path))
    assert sorted((row.n, row.side) for row in read.collect()) == sorted(
        list(enumerate(texts)) * 3, key=lambda row: row[0]
    )
    assert len(list(tmp_path.rglob("compacted-*.parquet"))) == len(texts)


def test_a_lock_that_was_let_go(spark: SparkSession, tmp_path: Path) -> None:
    """A sink that is closed can be used again, as the compaction at a job's end does."""
    sink = ParquetSink(spark, str(tmp_path))
    for batch in range(2):
        with closing(sink):
            sink.append(spark.range(batch, batch + 1).selectExpr("id AS n"), "app", batch)
    assert numbers(spark, tmp_path) == [0, 1]
