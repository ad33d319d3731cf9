"""Values that are JSON objects, decoded by a schema that is given or learned."""

# ruff: noqa: SLF001 - pyspark's gateway to the JVM has no public name

from __future__ import annotations

import json
import re
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from ottla.pipeline.values.decoder import DATA, REASON
from ottla.pipeline.values.evolution import evolve
from ottla.pipeline.values.exact_decimals import holds, is_rounded, narrowed, widened

__all__ = ["MAX_DEPTH", "JsonDecoder", "explain"]

MAX_DEPTH: Final = 64
"""How deep objects and arrays may be nested. Spark's plans recurse into columns: a few hundred levels end the JVM."""

_CORRUPT: Final = "__ottla_corrupt"
_TEXT: Final = "__ottla_text"
_UNFIT: Final = "the value does not fit"
_TOO_DEEP: Final = f"the value is nested deeper than {MAX_DEPTH} levels"
# A field that was null in every record has no type yet: it becomes a column with its first value.
_INFERENCE: Final = {
    "dropFieldIfAllNull": "true",
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
}


class JsonDecoder:
    """Decodes JSON objects in the JVM, and says what is wrong with each value that it cannot decode.

    A column of text takes any JSON value, as its text: that is how Spark reads it. Numbers with a fraction do not go
    into whole-number columns, nor numbers with more digits than a decimal has into one. Without `evolves`, fields that
    the schema lacks are left out. Values that are nested deeper than MAX_DEPTH are neither learned from nor decoded.
    """

    def __init__(self, schema: StructType | None, *, evolves: bool, reserved: frozenset[str] = frozenset()) -> None:
        self.schema = schema
        self._evolves = evolves
        self._reserved = reserved
        self._refused: tuple[str, ...] = ()
        self._refused_within: tuple[str, ...] = ()

    @property
    def learns(self) -> bool:
        return self._evolves

    def learn(self, rows: DataFrame) -> bool:
        if not self._evolves:
            return False
        texts = rows.select(F.try_validate_utf8(F.col("value").cast("string")).alias(_TEXT)).where(
            F.col(_TEXT).rlike(r"^\s*\{") & ~_is_deep(F.col(_TEXT))
        )
        evolution = evolve(self.schema or StructType(), _inferred(texts), self._reserved)
        self._refused, self._refused_within = evolution.refused, evolution.refused_within
        changed = evolution.schema != self.schema and bool(evolution.schema.fields)
        if changed:
            self.schema = evolution.schema
        return changed

    def decode(self, rows: DataFrame) -> DataFrame:
        schema = self.schema or StructType()
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
        read = widened(schema)
        parsed_schema = StructType([*read.fields, StructField(_CORRUPT, StringType())])
        text, parsed = F.col(_TEXT), F.col(DATA)
        has_value = F.col("value").isNotNull()
        reason = (
            F.when(has_value & text.isNull(), F.lit("the value is not UTF-8"))
            .when(has_value & ~text.rlike(r"^\s*\{"), F.lit("the value is not a JSON object"))
            .when(has_value & _is_deep(text), F.lit(_TOO_DEEP))
            .when(has_value & (parsed.isNull() | parsed[_CORRUPT].isNotNull() | _has_more(text)), F.lit(_UNFIT))
        )
        if read != schema:
            reason = reason.when(has_value & is_rounded(parsed, schema, read), F.lit(_UNFIT))
        unfit = {name: F.array_contains(F.json_object_keys(text), name) for name in self._refused}
        # Further down only the name can be looked for.
        unfit |= {name: text.rlike(f'"{re.escape(name)}"\\s*:') for name in self._refused_within}
        if self._evolves:  # Spark's inference passes over fields without a name.
            unfit[""] = text.rlike(r'(?<!\\)""\s*:')
        for name, has_it in unfit.items():
            reason = reason.when(has_value & has_it, F.lit(f"field {name!r} cannot become a column"))
        kept = F.struct(*narrowed(parsed, schema, read)) if schema.fields else None
        return (
            rows.withColumn(_TEXT, F.try_validate_utf8(F.col("value").cast("string")))
            .withColumn(DATA, F.from_json(F.when(~_is_deep(text), text), parsed_schema, options))
            .withColumn(REASON, reason)
            .withColumn(DATA, F.when(F.col(REASON).isNull() & has_value, kept) if kept is not None else F.lit(None))
            .drop(_TEXT)
        )

    def explained(self, dead: DataFrame) -> DataFrame:
        """Dead letters whose general reason is replaced by what is wrong in them."""
        schema_json = (self.schema or StructType()).json()

        specific = F.udf(lambda value, reason: explain(value, schema_json) or reason, "string")
        general = F.col(REASON) == _UNFIT
        return dead.withColumn(REASON, F.when(general, specific("value", REASON)).otherwise(F.col(REASON)))


def _is_deep(text: Column) -> Column:
    """Whether JSON is nested deeper than MAX_DEPTH, found out without recursion; also true of some texts that are not
    JSON.

    Few texts have so many brackets at all. Only in these what is quoted is taken out, and the brackets are counted.
    """
    openings = F.length(text) - F.length(F.translate(text, "{[", ""))
    unquoted = F.regexp_replace(F.regexp_replace(text, r"(?s)\\.", ""), '"[^"]*"', "")
    only_brackets = F.regexp_replace(unquoted, r"[^\[\]{}]", "")
    # Counting takes long if there are very many; so many openings in a row are enough to know.
    is_steep = only_brackets.rlike(rf"[\[{{]{{{MAX_DEPTH + 1}}}")
    brackets = F.split(only_brackets, "")
    start = F.struct(F.lit(0).alias("depth"), F.lit(0).alias("most"))

    def further(so_far: Column, bracket: Column) -> Column:
        step = F.when(bracket.isin("{", "["), 1).when(bracket.isin("}", "]"), -1).otherwise(0)
        depth = so_far["depth"] + step
        return F.struct(depth.alias("depth"), F.greatest(so_far["most"], depth).alias("most"))

    deepest = F.aggregate(brackets, start, further, lambda found: found["most"])
    found = F.when(is_steep, F.lit(True)).otherwise(deepest > MAX_DEPTH)
    return F.when(openings > MAX_DEPTH, found).otherwise(F.lit(False))


def _has_more(text: Column) -> Column:
    """Whether something follows the object, which Spark's own reader would pass over.

    An object whose first closing brace is the text's last letter is alone. For others, Spark counts the elements of an
    array around the text, up to where that ends: with another element after the text there must be one more.
    """
    trimmed = F.regexp_replace(text, r"\s+$", "")
    may_have = F.locate("}", text) < F.length(trimmed)
    alone = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    followed = F.json_array_length(F.concat(F.lit("["), text, F.lit(",0]")))
    is_one = F.coalesce((alone == 1) & (~text.rlike(r"\}\s*\]") | (followed == 2)), F.lit(False))
    return ~text.rlike(r"\}\s*$") | (may_have & ~is_one)


def _inferred(texts: DataFrame) -> StructType:
    """The fields of JSON texts, inferred in the JVM: pyspark would carry each text through Python."""
    spark: Any = texts.sparkSession
    strings = getattr(texts._jdf, "as")(spark._jvm.org.apache.spark.sql.Encoders.STRING())
    reader = spark._jsparkSession.read()
    for name, value in _INFERENCE.items():
        reader = reader.option(name, value)
    seen = StructType.fromJson(json.loads(reader.json(strings).schema().json()))
    return StructType([field for field in seen.fields if field.name != _CORRUPT])


def explain(value: bytes | None, schema_json: str) -> str | None:
    """What is wrong with a value, by a schema as JSON; None if nothing is found."""
    try:
        document = json.loads(value or b"")
        return _mismatch(document, StructType.fromJson(json.loads(schema_json)), "")
    except RecursionError:
        return _TOO_DEEP
    except ValueError as error:
        return f"the value is not JSON: {error}"


def _mismatch(document: Any, kind: DataType, path: str) -> str | None:
    if document is None:
        return None
    if isinstance(kind, StructType) and isinstance(document, dict):
        parts = ((document.get(field.name), field.dataType, f"{path}.{field.name}") for field in kind.fields)
        return next(filter(None, (_mismatch(*part) for part in parts)), None)
    if isinstance(kind, ArrayType) and isinstance(document, list):
        return next(filter(None, (_mismatch(part, kind.elementType, f"{path}[]") for part in document)), None)
    if isinstance(kind, MapType) and isinstance(document, dict):
        return next(filter(None, (_mismatch(part, kind.valueType, f"{path}.*") for part in document.values())), None)
    if _fits(document, kind):
        return None
    where = f"field {path.lstrip('.')}" if path else "the value"
    return f"{where} is {json.dumps(document)[:100]}, not {kind.simpleString()}"


def _fits(document: Any, kind: DataType) -> bool:
    if isinstance(document, bool):
        return isinstance(kind, BooleanType | StringType)
    if isinstance(document, int | float) and isinstance(kind, DecimalType):
        return holds(kind, document)
    if isinstance(document, int):
        return isinstance(kind, FractionalType | StringType) or (
            isinstance(kind, IntegralType) and -(2**63) <= document < 2**63
        )
    if isinstance(document, float):
        return isinstance(kind, FractionalType | StringType)
    if isinstance(document, dict | list):
        return isinstance(kind, StringType)
    # Text: dates, times and the like may or may not be well formed; for numbers and truth it never fits.
    return not isinstance(kind, IntegralType | FractionalType | BooleanType | StructType | ArrayType | MapType)
