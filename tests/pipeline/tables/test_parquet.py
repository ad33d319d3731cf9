"""A Parquet table whose writer is killed at every step of a batch, and of a compaction."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.pipeline.tables.files import FileSystem
from ottla.pipeline.tables.parquet import ParquetSink

pytestmark = [pytest.mark.spark, pytest.mark.slow]


class KilledError(BaseException):
    """As a kill comes: nothing is tidied up."""


class DyingFileSystem(FileSystem):
    """Ends its writer at the n-th change, before or after it is made."""

    left = 0
    before = True

    def write_text(self, path: str, text: str) -> None:
        self._change(super().write_text, path, text)

    def rename(self, source: str, target: str) -> None:
        self._change(super().rename, source, target)

    def delete(self, path: str) -> None:
        self._change(super().delete, path)

    def _change(self, change: Any, *arguments: str) -> None:
        DyingFileSystem.left -= 1
        if self.left == 0 and self.before:
            raise KilledError
        change(*arguments)
        if self.left == 0:
            raise KilledError


def numbers(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row.n for row in spark.read.parquet(str(path)).collect())


def open_sink(spark: SparkSession, path: Path, partition_by: Sequence[str] = ()) -> closing[ParquetSink]:
    return closing(ParquetSink(spark, str(path), partition_by, compact_files=3))


def append(sink: closing[ParquetSink], spark: SparkSession, batch: int, app_id: str = "app") -> None:
    rows = spark.range(batch * 10, batch * 10 + 10).selectExpr("id AS n", "id % 2 AS side").repartition(2)
    with sink as opened:
        opened.append(rows, app_id, batch)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_batch_killed_at_every_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    survived = False
    for step in itertools.count(1):
        path = tmp_path / str(step)
        append(open_sink(spark, path, ["side"]), spark, 0)
        with monkeypatch.context() as patch:
            patch.setattr("ottla.pipeline.tables.parquet.FileSystem", DyingFileSystem)
            patch.setattr(DyingFileSystem, "left", step)
            patch.setattr(DyingFileSystem, "before", before)
            try:
                append(open_sink(spark, path, ["side"]), spark, 1)
                survived = True
            except KilledError:
                assert len(set(numbers(spark, path))) == len(numbers(spark, path))
        append(open_sink(spark, path, ["side"]), spark, 1)
        append(open_sink(spark, path, ["side"]), spark, 2)
        assert numbers(spark, path) == list(range(30))
        if survived:
            break
    assert step > 3


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_compaction_killed_at_every_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    survived = False
    for step in itertools.count(1):
        path = tmp_path / str(step)
        for batch in range(2):
            append(open_sink(spark, path), spark, batch)
        with monkeypatch.context() as patch:
            patch.setattr("ottla.pipeline.tables.parquet.FileSystem", DyingFileSystem)
            patch.setattr(DyingFileSystem, "left", step)
            patch.setattr(DyingFileSystem, "before", before)
            try:
                with open_sink(spark, path) as sink:
                    sink.compact()
                survived = True
            except KilledError:
                assert set(numbers(spark, path)) == set(range(20))  # twice perhaps, but never missing
        with open_sink(spark, path) as sink:
            sink.recover()
        assert numbers(spark, path) == list(range(20))
        append(open_sink(spark, path), spark, 1)
        append(open_sink(spark, path), spark, 2)
        assert numbers(spark, path) == list(range(30))
        if survived:
            break
    assert step > 3
