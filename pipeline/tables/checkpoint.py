"""What a table's job remembers of itself, beside Spark's own checkpoint.

`<checkpoint>/spark` is Spark's: offsets and commits. `<checkpoint>/job.json` says which topic goes into which table,
and carries the id under which batches are written, so that a table knows a batch that it already has.
`<checkpoint>/schema.json` is the table's schema, which evolves.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ottla.pipeline.tables.config import TableConfig
from ottla.pipeline.tables.errors import CheckpointError
from ottla.pipeline.tables.files import FileSystem

__all__ = ["Checkpoint", "Identity"]

IDENTITY_FILE: Final = "job.json"
SCHEMA_FILE: Final = "schema.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose checkpoint it is. `app_id` is new for each checkpoint: batch numbers start anew with it."""

    app_id: str
    topic: str
    topic_id: str
    path: str
    mode: str
    decode: str


class Checkpoint:
    """One table's checkpoint folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = folder
        self._files = FileSystem(spark, folder)

    @property
    def spark_folder(self) -> str:
        return f"{self.folder}/spark"

    def identity(self) -> Identity | None:
        """Whose it is; None for a new one."""
        text = self._files.read_text(f"{self.folder}/{IDENTITY_FILE}")
        return None if text is None else Identity(**json.loads(text))

    def claim(self, table: TableConfig, topic_id: str) -> Identity:
        """Make it this table's, or say for which topic it was made. CheckpointError if it is another table's."""
        held = self.identity()
        if held is None:
            held = Identity(str(uuid.uuid4()), table.topic, topic_id, table.path, table.mode, table.decode)
            self._files.write_text(f"{self.folder}/{IDENTITY_FILE}", json.dumps(asdict(held), indent=2))
            return held
        for what, theirs, mine in (
            ("topic", held.topic, table.topic),
            ("table", held.path, table.path),
            ("mode", held.mode, table.mode),
            ("decode", held.decode, table.decode),
        ):
            if theirs != mine:
                raise CheckpointError(
                    f"The checkpoint {self.folder} belongs to {what} {theirs!r}, not {mine!r}: "
                    "give this table a checkpoint of its own."
                )
        return held

    def next_offsets(self) -> dict[str, dict[str, int]] | None:
        """Where the next batch starts, by topic and partition; None if there was no batch yet."""
        folder = f"{self.spark_folder}/offsets"
        numbers = [int(name) for name in self._files.names(folder) if name.isdigit()]
        commits = {int(name) for name in self._files.names(f"{self.spark_folder}/commits") if name.isdigit()}
        done = [number for number in numbers if number in commits]
        if not done:
            return None
        text = self._files.read_text(f"{folder}/{max(done)}") or ""
        last_line = text.strip().rpartition("\n")[2]
        offsets: dict[str, dict[str, int]] = json.loads(last_line)
        return offsets

    def schema(self) -> StructType | None:
        """The schema of the table's values, as it has evolved until now."""
        text = self._files.read_text(f"{self.folder}/{SCHEMA_FILE}")
        return None if text is None else StructType.fromJson(json.loads(text))

    def keep_schema(self, schema: StructType) -> None:
        """Remember a schema; before a batch is written by it."""
        self._files.write_text(f"{self.folder}/{SCHEMA_FILE}", schema.json())
