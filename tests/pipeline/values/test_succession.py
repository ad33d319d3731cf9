"""Which schema a table has after another one was given than before."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from ottla.pipeline.values.succession import SchemaChangeError, check_columns, succeed


def columns(ddl: str) -> StructType:
    """A schema of few words: this module's tests start no Spark."""
    kinds = {"int": "integer", "bigint": "long"}
    fields = [part.split(" ") for part in ddl.split(", ")] if ddl else []
    return StructType.fromJson(
        {
            "fields": [
                {"name": name, "type": kinds.get(kind, kind), "nullable": True, "metadata": {}} for name, kind in fields
            ]
        }
    )


def within(name: str, kind: DataType) -> StructType:
    return StructType().add(name, kind)


def after(kept: str, given: str, *, evolves: bool = False, widens: bool = False) -> StructType:
    return succeed(columns(kept), columns(given), evolves=evolves, widens=lambda *_: widens)


def test_the_same_schema_and_new_columns() -> None:
    assert after("id int, name string", "id int, name string") == columns("id int, name string")
    assert after("id int, name string", "new long, name string, id int") == columns("id int, name string, new long")
    assert after("", "id int") == columns("id int")


@pytest.mark.parametrize("widens", [True, False])
@pytest.mark.parametrize(
    ("kept", "given"),
    [
        ("bigint", "int"),
        ("int", "string"),
        ("double", "float"),
        ("int", "double"),
        ("string", "bigint"),
        ("decimal(10,2)", "decimal(11,4)"),
        ("decimal(10,2)", "decimal(9,2)"),
        ("date", "timestamp"),
    ],
)
def test_a_type_that_changes_is_refused(kept: str, given: str, widens: bool) -> None:
    with pytest.raises(SchemaChangeError, match=r"Column 'id' of the table is .*Write .* again, or name another path"):
        after(f"id {kept}", f"id {given}", widens=widens)


@pytest.mark.parametrize(
    ("kept", "given"),
    [("byte", "int"), ("short", "int"), ("int", "bigint"), ("float", "double"), ("decimal(10,2)", "decimal(12,4)")],
)
def test_a_wider_type_only_where_readers_follow(kept: str, given: str) -> None:
    assert after(f"id {kept}, a int", f"id {given}, a int", widens=True) == columns(f"id {given}, a int")
    with pytest.raises(SchemaChangeError, match=r"is (?!BIGINT).* but .* A Delta table can also widen the column"):
        after(f"id {kept}, a int", f"id {given}, a int")


def test_the_table_is_asked_only_when_a_column_would_be_wider() -> None:
    def never(*_: DataType) -> bool:
        raise AssertionError("asked")

    assert succeed(columns("id int"), columns("id int, a int"), evolves=False, widens=never) == columns("id int, a int")


def test_a_column_that_is_left_out() -> None:
    with pytest.raises(SchemaChangeError, match=r"Column 'name' of the table is missing .* keep it as STRING"):
        after("id int, name string", "id int")
    assert after("id int, learned string", "id int", evolves=True) == columns("id int, learned string")
    with pytest.raises(SchemaChangeError, match="Column 'id' of the table is 'ID' in the schema: keep its spelling"):
        after("id int", "ID int", evolves=True)


def test_within_structures_and_arrays() -> None:
    def nested(inner: str) -> StructType:
        kinds = within("at", columns(inner)).add("parts", ArrayType(columns(inner)))
        return kinds.add("by", MapType(StringType(), columns(inner)))

    def change(kept: str, given: str) -> StructType:
        return succeed(nested(kept), nested(given), evolves=False, widens=lambda *_: False)

    assert change("x int", "x int, y int") == nested("x int, y int")
    with pytest.raises(SchemaChangeError, match=r"Column 'at\.x' of the table is INT, but STRING"):
        change("x int", "x string")
    lines = within("lines", ArrayType(columns("x int")))
    with pytest.raises(SchemaChangeError, match=r"Column 'lines\[\]\.x' of the table is INT"):
        succeed(lines, within("lines", ArrayType(columns("x long"))), evolves=True, widens=lambda *_: False)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (within("a b", StructType()), "Column 'a b' of the schema cannot be one"),
        (within("", StructType()), "Column '' of the schema cannot be one"),
        (within("at", within("x;y", StructType())), "Column 'at.x;y' of the schema cannot be one"),
        (columns("id int, ID int"), "Column 'id' of the schema appears 2 times"),
        (columns("_Offset int"), "Column '_Offset' .* that the job writes itself"),
    ],
)
def test_what_cannot_be_a_column_is_said_at_the_start(given: StructType, sentence: str) -> None:
    with pytest.raises(SchemaChangeError, match=sentence):
        check_columns(given, frozenset({"_offset"}))


def test_what_can_be_a_column() -> None:
    check_columns(within("at", columns("_offset int, x int")).add("id", "integer"), frozenset({"_offset"}))
