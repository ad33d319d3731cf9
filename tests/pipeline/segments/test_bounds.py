"""Conditions of queries that leave out scans."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import LongType, StructField, StructType

from ottla.pipeline.segments.bounds import NO_BOUNDS, Bounds, bounds_of
from ottla.pipeline.segments.options import parse_segment_options
from ottla.pipeline.segments.source import PruningReader, SegmentsDataSource, SegmentsReader
from ottla.tiers.address import open_object_store
from tests.pipeline.segments.test_objects import fill, ranges_of, stretch
from tests.tiers.logs import FIRST_TIME_MS

filters: Any = datasource
if not hasattr(datasource, "EqualTo"):
    pytest.skip("Spark hands no filters to sources in Python before 4.1", allow_module_level=True)

TIME = datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)
TIME_MS = 1_714_979_289_123


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], NO_BOUNDS),
        ([filters.EqualTo(("topic",), "a")], Bounds(topics=frozenset("a"))),
        ([filters.In(("partition",), (1, 2)), filters.EqualTo(("partition",), 2)], Bounds(partitions=frozenset([2]))),
        (
            [filters.GreaterThan(("offset",), 5), filters.LessThan(("offset",), 9)],
            Bounds(first_offset=6, last_offset=8),
        ),
        (
            [filters.GreaterThanOrEqual(("offset",), 5), filters.LessThanOrEqual(("offset",), 9)],
            Bounds(first_offset=5, last_offset=9),
        ),
        ([filters.In(("offset",), (7, None, 3))], Bounds(first_offset=3, last_offset=7)),
        ([filters.In(("offset",), (None,))], NO_BOUNDS),
        ([filters.GreaterThan(("timestamp",), TIME)], Bounds(not_before_ms=TIME_MS)),
        ([filters.EqualTo(("timestamp",), TIME)], Bounds(not_before_ms=TIME_MS)),
        (
            [filters.GreaterThanOrEqual(("timestamp",), TIME - timedelta(days=40_000))],
            Bounds(not_before_ms=-1_741_020_710_877),
        ),
        # What says nothing: of other columns, of the opposite, of what lies within a column, of a time without a zone.
        ([filters.GreaterThan(("timestamp",), TIME.replace(tzinfo=None))], NO_BOUNDS),
        ([filters.EqualTo(("value",), b"a"), filters.IsNotNull(("offset",))], NO_BOUNDS),
        ([filters.Not(filters.EqualTo(("partition",), 2))], NO_BOUNDS),
        ([filters.LessThan(("timestamp",), TIME), filters.EqualTo(("headers", "partition"), 2)], NO_BOUNDS),
    ],
)
def test_what_filters_say(given: list[Any], expected: Bounds) -> None:
    assert bounds_of(given) == expected


@pytest.fixture
def url(tmp_path: Path) -> str:
    store = open_object_store(f"file://{tmp_path}", timeout_seconds=10)
    tier = fill(store, [stretch(0, 0, 60), stretch(1, 0, 30)])
    fill(store, [stretch(0, 60, 90)], [stretch(0, 90, 150)], tier=tier)
    return f"file://{tmp_path}"


def at(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=FIRST_TIME_MS + milliseconds)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], {(0, 0, 150), (1, 0, 30)}),
        ([filters.EqualTo(("partition",), 1)], {(1, 0, 30)}),
        ([filters.EqualTo(("topic",), "others")], set()),
        ([filters.GreaterThan(("offset",), 98), filters.LessThan(("offset",), 101)], {(0, 99, 101)}),
        ([filters.GreaterThanOrEqual(("timestamp",), at(89))], {(0, 60, 150)}),
        ([filters.GreaterThan(("timestamp",), at(90))], {(0, 90, 150)}),
        ([filters.GreaterThanOrEqual(("timestamp",), at(150))], set()),
    ],
)
def test_scans_that_are_left(url: str, given: list[Any], expected: set[tuple[int, int, int]]) -> None:
    reader = PruningReader(parse_segment_options({"path": url, "subscribe": "trips"}))

    assert list(reader.pushFilters(given)) == given

    found = {(each.partition.partition, each.start, each.end) for each in ranges_of(reader)}
    assert found == expected


def test_spark_is_offered_it_only_if_it_is_asked_for() -> None:
    """Otherwise Spark would refuse to read, unless its own setting is on."""
    for asked, kind in ((None, SegmentsReader), ("true", PruningReader)):
        options = {"path": "/data", "subscribe": "t", "columns": "offset"} | ({"pushFilters": asked} if asked else {})
        source = SegmentsDataSource(options)
        assert type(source.reader(StructType([StructField("offset", LongType())]))) is kind
    assert SegmentsReader.pushFilters is DataSourceReader.pushFilters
