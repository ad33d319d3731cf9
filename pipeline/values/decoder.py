"""What all decoders of values have in common, and the one that leaves values as they are."""

from __future__ import annotations

from typing import Final, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, StructField, StructType

__all__ = ["DATA", "REASON", "Decoder", "RawDecoder"]

DATA: Final = "data"
REASON: Final = "reason"


class Decoder(Protocol):
    """Turns the values of a batch of records into the columns of a table.

    `reserved` are names (in lower case) that fields of values may not have.
    """

    schema: StructType | None
    """What values are decoded into; None as long as nobody knows."""

    @property
    def learns(self) -> bool:
        """Whether `learn` looks at the rows at all."""

    def learn(self, rows: DataFrame) -> bool:
        """Take in what is new in a batch, before it is decoded. Returns whether the schema has changed."""

    def decode(self, rows: DataFrame) -> DataFrame:
        """The rows with `data` and `reason`. A row whose value is null has neither: the table decides what it means."""


class RawDecoder:
    """Keeps keys, values and headers as they are."""

    schema: StructType | None = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])

    @property
    def learns(self) -> bool:
        return False

    def learn(self, rows: DataFrame) -> bool:
        return False

    def decode(self, rows: DataFrame) -> DataFrame:
        no_reason: Column = F.lit(None).cast("string")
        return rows.withColumn(DATA, F.struct("key", "value")).withColumn(REASON, no_reason)
