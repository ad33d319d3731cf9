"""How a table's schema takes in what values bring."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ottla.pipeline.values.evolution import evolve, nullable


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def test_new_fields_come_at_the_end_and_are_nullable() -> None:
    held = struct(id=LongType())
    seen = StructType([StructField("name", StringType(), nullable=False), StructField("id", LongType())])
    schema, *refused = evolve(held, seen)
    assert schema == struct(id=LongType(), name=StringType())
    assert refused == [(), ()]


def test_a_field_keeps_its_type_and_nothing_is_dropped() -> None:
    held = struct(id=LongType(), name=StringType())
    assert evolve(held, struct(id=StringType())).schema == held
    assert evolve(held, StructType()).schema == held


def test_new_fields_within_structs_and_arrays() -> None:
    held = struct(at=struct(x=LongType()), parts=ArrayType(struct(a=LongType())))
    seen = struct(at=struct(y=LongType()), parts=ArrayType(struct(b=StringType(), a=StringType())))
    assert evolve(held, seen).schema == struct(
        at=struct(x=LongType(), y=LongType()), parts=ArrayType(struct(a=LongType(), b=StringType()))
    )


def test_evolving_again_changes_nothing() -> None:
    held = struct(id=LongType())
    seen = struct(id=LongType(), at=struct(x=LongType()))
    once = evolve(held, seen).schema
    assert evolve(once, seen).schema == once


def test_names_that_cannot_be_columns_are_refused() -> None:
    held = struct(id=LongType())
    seen = struct(**{"Id": LongType(), "a b": LongType(), "_offset": LongType(), "X": LongType(), "x": LongType()})
    schema, refused, _ = evolve(held, seen, frozenset({"_offset"}))
    assert schema == struct(id=LongType(), x=LongType())
    assert refused == ("Id", "X", "_offset", "a b")


def test_names_further_down_are_refused_there() -> None:
    held = struct(at=struct(x=LongType()))
    parts = ArrayType(struct(**{"n;": LongType(), "m": LongType()}))
    schema, refused, within = evolve(held, struct(at=struct(X=LongType(), y=LongType()), parts=parts))
    assert schema == struct(at=struct(x=LongType(), y=LongType()), parts=ArrayType(struct(m=LongType())))
    assert (refused, within) == ((), ("X", "n;"))


def test_everything_within_becomes_nullable() -> None:
    inner = StructType([StructField("a", LongType(), nullable=False)])
    kind = MapType(StringType(), ArrayType(inner, containsNull=False), valueContainsNull=False)
    assert nullable(kind) == MapType(StringType(), ArrayType(struct(a=LongType())))
