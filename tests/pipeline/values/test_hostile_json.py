"""Values that are JSON to the letter, or nearly, and made to break who reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from compat_tests.spark.hostile import HOSTILE, with_a_doubled_key, with_much_beside
from ottla.pipeline.values.decoder import DATA, REASON
from ottla.pipeline.values.json_values import MAX_DEPTH, JsonDecoder, explain

TOO_DEEP = f"the value is nested deeper than {MAX_DEPTH} levels"
GIVEN = StructType([StructField("a", LongType()), StructField("t", StringType())])


def nested(levels: int, opening: bytes = b'{"n":', closing: bytes = b"}") -> bytes:
    """An object with so many levels, its own included."""
    return b'{"a":1,"n":' + opening * (levels - 1) + b"1" + closing * (levels - 1) + b"}"


DEEP = {
    "objects": nested(1_500),
    "objects, a little": nested(600),
    "objects, one too many": nested(MAX_DEPTH + 1),
    "arrays": nested(100_000, b"[", b"]"),
    "behind quotes": b'{"t":"\\"","n":' + b"[" * 1_500 + b"]" * 1_500 + b"}",
}
UNFIT = {
    "a brace behind": b'{"a":1}}',
    "a bracket behind": b'{"a":1}]',
    "a bracket and an object behind": b'{"a":1}],[{"a":2}',
    "a bracket and another array behind": b'{"a":1},{}],[{}',
    "objects behind": b'{"a":1} {"a":2}',
    "words behind": b'{"a":1} and so on }',
    "a comma behind": b'{"a":1},',
}
GOOD = {
    "brackets within quotes": b'{"a":1,"t":"' + b"{[" * 1_000 + b'"}',
    "braces and quotes within quotes": b'{"a":1,"t":"}\\"},{\\"\\":\\\\"}',
    "many, side by side": b'{"a":1,"n":[' + b"[]," * 1_000 + b"[]]}",
    "space behind": b'{"a":1,"n":[]} \r\n\t ',
    "empty texts": b'{"a":1,"t":"","n":[""]}',
}


@pytest.mark.parametrize("value", DEEP.values(), ids=DEEP.keys())
def test_what_is_wrong_is_said_without_recursion(value: bytes) -> None:
    assert explain(value, GIVEN.json()) in (None, TOO_DEEP)


@pytest.mark.parametrize("schema", [None, GIVEN], ids=["learned", "given"])
def test_hostile_values_are_dead_letters_among_good_ones(spark: SparkSession, schema: StructType | None) -> None:
    unnamed = [b'{"":1}', b'{"a":1,"t":{"" : 2}}']
    values = [*DEEP.values(), *UNFIT.values(), *unnamed, *GOOD.values()]
    rows = spark.createDataFrame(
        [(number, bytearray(value)) for number, value in enumerate(values)], "n INT, value BINARY"
    )
    decoder = JsonDecoder(schema, evolves=schema is None)
    decoder.learn(rows)
    assert decoder.schema is not None
    assert {"a", "t"} <= set(decoder.schema.fieldNames())
    decoded = decoder.explained(decoder.decode(rows)).orderBy("n").select(f"{DATA}.a", REASON).collect()

    reasons = dict(zip(values, (row[REASON] for row in decoded), strict=True))
    assert [reasons[value] for value in DEEP.values()] == [TOO_DEEP] * len(DEEP)
    assert {name: reasons[value] for name, value in UNFIT.items() if not reasons[value]} == {}
    # A schema that is given takes the fields that it names, and no others.
    nameless = "field '' cannot become a column" if schema is None else None
    assert [reasons[value] for value in unnamed] == [nameless] * 2
    assert {name: reasons[value] for name, value in GOOD.items() if reasons[value]} == {}
    assert [row.a for row in decoded[-len(GOOD) :]] == [1] * len(GOOD)


def test_hostile_numbers_keys_and_encodings(spark: SparkSession) -> None:
    good = [with_a_doubled_key(7, "k"), with_much_beside(8, "k")]
    rows = spark.createDataFrame(
        [(number, bytearray(value)) for number, value in enumerate([*HOSTILE, *good])], "n INT, value BINARY"
    )
    schema = StructType([StructField("n", LongType()), StructField("key", StringType())])
    decoder = JsonDecoder(schema, evolves=False)
    decoded = decoder.explained(decoder.decode(rows)).orderBy("n").select(DATA, REASON).collect()
    assert [value[:50] for value, row in zip(HOSTILE, decoded, strict=False) if row[REASON] is None] == []
    assert all(row[DATA] is None for row in decoded[: len(HOSTILE)])
    assert [(row[REASON], row[DATA].n, row[DATA].key) for row in decoded[len(HOSTILE) :]] == [
        (None, 7, "k"),
        (None, 8, "k"),
    ]


@pytest.mark.slow
def test_the_deepest_that_is_taken_reaches_the_table(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(bytearray(nested(MAX_DEPTH)),)], "value BINARY")
    decoder = JsonDecoder(None, evolves=True)
    decoder.learn(rows)
    decoder.decode(rows).select(f"{DATA}.*").write.parquet(f"{tmp_path}/table")
    (row,) = spark.read.parquet(f"{tmp_path}/table").collect()
    levels = 1
    inner = row.n
    while not isinstance(inner, int):
        inner, levels = inner.n, levels + 1
    assert (row.a, levels) == (1, MAX_DEPTH)
