"""What a table's job remembers of itself, beside Spark's own checkpoint.

`<checkpoint>/spark` is Spark's: offsets and commits. `<checkpoint>/job.json` says which topic goes into which table,
and carries the id under which batches are written, so that a table knows a batch that it already has.
`<checkpoint>/schema.json` is the table's schema, which evolves.
"""

from __future__ import annotations

import json
import uuid
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ottla.pipeline.tables.config import TableConfig
from ottla.pipeline.tables.errors import CheckpointError
from ottla.pipeline.tables.files import FileSystem
from ottla.pipeline.tables.local_files import lock

__all__ = ["Checkpoint", "Identity"]

IDENTITY_FILE: Final = "job.json"
SCHEMA_FILE: Final = "schema.json"

_WRITTEN_SO: Final = ("format", "partition_by", "key", "key_type")
"""Settings that a table keeps for its life: another one would hide its rows, or double them."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose checkpoint it is, and what the table's rows depend on.

    `app_id` is new for each checkpoint: batch numbers start again with it. What a checkpoint of an earlier version does
    not say is None, until the table claims it.
    """

    app_id: str
    topic: str
    topic_id: str
    path: str
    mode: str
    decode: str
    format: str | None = None
    partition_by: tuple[str, ...] | None = None
    key: str | None = None
    key_type: str | None = None

    @classmethod
    def new(cls, table: TableConfig, topic_id: str) -> Identity:
        """A new checkpoint's."""
        return cls(app_id=str(uuid.uuid4()), topic_id=topic_id, **_identifying(table))

    @classmethod
    def from_json(cls, text: str) -> Identity:
        fields = json.loads(text)
        if fields.get("partition_by") is not None:
            fields["partition_by"] = tuple(fields["partition_by"])
        return cls(**fields)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def claimed(self, table: TableConfig, folder: str) -> Identity:
        """The same, of a table that it belongs to. CheckpointError if that is another, or was written otherwise."""
        for what, mine in _identifying(table).items():
            theirs = getattr(self, what)
            if theirs == mine or (self.format is None and theirs is None):
                continue
            if what in _WRITTEN_SO:
                raise CheckpointError(
                    f"Table {table.name!r} was written with {_setting(what, theirs)}, not with {_setting(what, mine)}: "
                    "what is there would be hidden, or come a second time. Write it as it was; or name another path "
                    "and another checkpoint, into which the topic is read again."
                )
            raise CheckpointError(
                f"The checkpoint {folder} belongs to {'table' if what == 'path' else what} {theirs!r}, not {mine!r}: "
                "give this table a checkpoint of its own."
            )
        return replace(self, **_identifying(table))


class Checkpoint:
    """One table's checkpoint folder."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.folder = folder
        self._files = FileSystem(spark, folder)

    @property
    def spark_folder(self) -> str:
        return f"{self.folder}/spark"

    def locked(self) -> AbstractContextManager[None]:
        """Hold it for this job alone. CheckpointError if another has it.

        That can be seen on the driver's own disk only; on a shared file system nothing keeps a second job out.
        """
        local = self._files.local(self.folder)
        if local is None:
            return nullcontext()
        refusal = CheckpointError(
            f"Another job that runs now has the checkpoint {local}: wait until it has ended, or stop it. Two at once "
            "would write the table's rows twice."
        )
        return lock(local, refusal)

    def identity(self) -> Identity | None:
        """Whose it is; None for a new one."""
        text = self._files.read_text(f"{self.folder}/{IDENTITY_FILE}")
        return None if text is None else Identity.from_json(text)

    def claim(self, table: TableConfig, topic_id: str) -> Identity:
        """Make it this table's, or say for which topic it was made. CheckpointError if it is another table's."""
        held = self.identity()
        claimed = Identity.new(table, topic_id) if held is None else held.claimed(table, self.folder)
        if claimed != held:
            self._files.write_text(f"{self.folder}/{IDENTITY_FILE}", claimed.to_json())
        return claimed

    def next_offsets(self) -> dict[str, dict[str, int]] | None:
        """Where the next batch starts, by topic and partition; None if there was no batch yet."""
        commits = set(self._numbers("commits"))
        done = [number for number in self._numbers("offsets") if number in commits]
        return self._offsets(max(done)) if done else None

    def planned_offsets(self) -> dict[str, Any] | None:
        """Where the last batch that was planned ends, whether or not it is done; None if there was none yet."""
        numbers = self._numbers("offsets")
        return self._offsets(max(numbers)) if numbers else None

    def _numbers(self, folder: str) -> list[int]:
        return [int(name) for name in self._files.names(f"{self.spark_folder}/{folder}") if name.isdigit()]

    def _offsets(self, batch: int) -> dict[str, Any]:
        text = self._files.read_text(f"{self.spark_folder}/offsets/{batch}") or ""
        offsets: dict[str, Any] = json.loads(text.strip().rpartition("\n")[2])
        return offsets

    def schema(self) -> StructType | None:
        """The schema of the table's values, as it has evolved until now."""
        text = self._files.read_text(f"{self.folder}/{SCHEMA_FILE}")
        return None if text is None else StructType.fromJson(json.loads(text))

    def keep_schema(self, schema: StructType) -> None:
        """Remember a schema; before a batch is written by it."""
        self._files.write_text(f"{self.folder}/{SCHEMA_FILE}", schema.json())


def _identifying(table: TableConfig) -> dict[str, Any]:
    """The settings that make a table the one it is. Without a column for the key its type means nothing."""
    return {
        "topic": table.topic,
        "path": table.path,
        "mode": table.mode,
        "decode": table.decode,
        "format": table.format,
        "partition_by": table.partition_by,
        "key": table.key,
        "key_type": table.key_type if table.key is not None else None,
    }


def _setting(name: str, value: Any) -> str:
    """A setting as the job's file has it."""
    if value is None:
        return f"no {name}"
    return f"{name} = {json.dumps(value)}"
