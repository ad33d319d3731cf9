"""Which columns of a table go into a record's value."""

from __future__ import annotations

from dataclasses import replace

from ottla.pipeline.tables.publish import Publication, value_columns

COLUMNS = ["id", "total", "_topic", "_partition", "_offset", "_timestamp", "_date"]


def test_a_table_that_was_kept_from_a_topic_can_be_kept_from_another() -> None:
    """Its `_offset` would be a field that the next table has a column of its own for."""
    whole = Publication("rich", "localhost:9092", table="lake/orders")
    assert value_columns(COLUMNS, whole) == ["id", "total"]
    assert value_columns(COLUMNS, replace(whole, key="id", headers=("_offset",))) == ["total"]


def test_a_query_says_itself_what_it_sends() -> None:
    query = Publication("rich", "localhost:9092", query="SELECT * FROM orders", key="id")
    assert value_columns(COLUMNS, query) == COLUMNS[1:]
