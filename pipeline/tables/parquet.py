"""Tables of plain Parquet files, which any tool reads as a folder.

A batch is written in two steps, so that a kill between them loses nothing and doubles nothing:

1. Its files go into a staging folder that readers do not see, `_ottla/staging/<app id>/<some name>/`.
2. A manifest, `_ottla/commits/<app id>/<batch>.json`, says where each of them belongs. It appears whole or not at all:
   this is the commit. Then the files are moved there, one by one.

A batch without a manifest was not written, and what is staged of it is of no use; one with a manifest was, and its
moves are made up for. Compaction takes the same way, with a manifest that also names the files that are replaced: they
go when the new ones are there, so that no row is ever missing. Each file is seen whole, but a reader may see a batch in
part, or the rows of a compaction twice: who needs more takes Delta.

Several jobs may write into one table one after the other, as into that of their dead letters: a job removes only what
it has staged itself, since a manifest of another may still name the rest. Two at once would compact the same files
twice: on the driver's own disk a lock keeps the second one out.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from ottla.pipeline.tables.errors import TableError
from ottla.pipeline.tables.files import FileSystem
from ottla.pipeline.tables.local_files import lock

__all__ = ["ParquetSink"]

KEPT_COMMITS: Final = 10
TARGET_SIZE_BYTES: Final = 128 * 1024 * 1024
HIDDEN: Final = "_ottla"
COMPACTION: Final = "compaction"


class ParquetSink:
    """Implements Sink, without upserts."""

    def __init__(
        self, spark: SparkSession, path: str, partition_by: Sequence[str] = (), compact_files: int = 16
    ) -> None:
        self.path = path.rstrip("/")
        self._spark = spark
        self._partition_by = list(partition_by)
        self._compact_files = compact_files
        self._files = FileSystem(spark, self.path)
        self._hidden = f"{self.path}/{HIDDEN}"
        self._held = ExitStack()
        self._is_held = False

    def recover(self) -> None:
        if self._files.exists(self._hidden):
            self._hold()
            self._finish_compaction()

    def has_rows(self) -> bool:
        return any(self._data_files())

    def append(self, rows: DataFrame, app_id: str, batch_id: int) -> None:
        self._hold()
        self._finish_compaction()
        commits = f"{self._hidden}/commits/{app_id}"
        manifest_path = f"{commits}/{batch_id:010}.json"
        text = self._files.read_text(manifest_path)
        if text is None:
            manifest = self._stage(rows, app_id, f"{app_id[:8]}-{batch_id:010}")
            self._files.write_text(manifest_path, json.dumps(manifest))
            self._carry_out(manifest)
        else:
            manifest = json.loads(text)
            # Where its staging folder is gone all was done, and since then perhaps compacted.
            if self._files.exists(manifest["staging"]):
                self._carry_out(manifest)
        for name in self._files.names(commits)[:-KEPT_COMMITS]:
            self._files.delete(f"{commits}/{name}")

    def upsert(self, rows: DataFrame, key: str, deleted: str, app_id: str, batch_id: int) -> None:
        raise TableError(f"The table {self.path} is Parquet, which cannot be changed row by row: use delta or iceberg.")

    def widens(self, kept: DataType, given: DataType) -> bool:
        return False  # each file has the types that it was written with

    def compact(self) -> None:
        self._hold()
        self._finish_compaction()
        self._files.delete(self._staging(COMPACTION))  # of one that was killed before its manifest
        small: dict[str, list[str]] = defaultdict(list)
        for name, size_bytes in self._data_files().items():
            if size_bytes < TARGET_SIZE_BYTES // 2:
                small[name.rpartition("/")[0]].append(name)
        for folder, names in small.items():
            if len(names) >= self._compact_files:
                self._compact_folder(folder, sorted(names))

    def _compact_folder(self, folder: str, names: list[str]) -> None:
        paths = [f"{self.path}/{name}" for name in names]
        rows = self._spark.read.option("mergeSchema", "true").option("recursiveFileLookup", "true").parquet(*paths)
        staging = f"{self._staging(COMPACTION)}/{uuid.uuid4().hex}"
        rows.coalesce(1).write.parquet(staging)
        prefix = f"{folder}/" if folder else ""
        moves = [
            [f"{staging}/{name}", f"{prefix}compacted-{uuid.uuid4().hex}.parquet"] for name in self._staged(staging)
        ]
        manifest = {"staging": staging, "removes": names, "moves": moves}
        self._files.write_text(f"{self._hidden}/compaction.json", json.dumps(manifest))
        self._finish_compaction()

    def _finish_compaction(self) -> None:
        path = f"{self._hidden}/compaction.json"
        text = self._files.read_text(path)
        if text is not None:
            self._carry_out(json.loads(text))
            self._files.delete(path)

    def close(self) -> None:
        self._held.close()
        self._is_held = False

    def _hold(self) -> None:
        """Keep other jobs out from now until `close`. TableError if one is in."""
        if not self._is_held and (local := self._files.local(self._hidden)) is not None:
            refusal = TableError(
                f"Another job that runs now writes into the table {self.path}: wait until it has ended, or give this "
                "one a path of its own. A table takes one job at a time, and so does that of dead letters."
            )
            self._held.enter_context(lock(local, refusal))
        self._is_held = True

    def _staging(self, name: str) -> str:
        """The folder of what a job, or a compaction, has staged."""
        return f"{self._hidden}/staging/{name}"

    def _stage(self, rows: DataFrame, app_id: str, prefix: str) -> dict[str, Any]:
        """Write the rows where nobody sees them. A name of its own keeps a killed writer's last breath out of it."""
        self._files.delete(self._staging(app_id))
        staging = f"{self._staging(app_id)}/{uuid.uuid4().hex}"
        writer = rows.write
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.parquet(staging)
        moves = []
        for number, name in enumerate(self._staged(staging)):
            folder = name.rpartition("/")[0]
            target = f"{prefix}-{number:05}.parquet"
            moves.append([f"{staging}/{name}", f"{folder}/{target}" if folder else target])
        return {"staging": staging, "removes": [], "moves": moves}

    def _carry_out(self, manifest: dict[str, Any]) -> None:
        """Do what a manifest says, or what is left of it. TableError if a file of it is nowhere."""
        for staged, name in manifest["moves"]:
            target = f"{self.path}/{name}"
            if self._files.exists(staged):
                self._files.rename(staged, target)
            elif not self._files.exists(target):
                raise TableError(
                    f"The file {staged}, whose rows belong into the table {self.path}, is gone: something removed it "
                    "before it was moved there. Read the topic again, into another table."
                )
        for name in manifest["removes"]:
            self._files.delete(f"{self.path}/{name}")
        self._files.delete(manifest["staging"])

    def _staged(self, staging: str) -> list[str]:
        return sorted(name for name in self._files.files(staging) if name.endswith(".parquet"))

    def _data_files(self) -> dict[str, int]:
        found = self._files.files(self.path)
        return {
            name: size
            for name, size in found.items()
            if name.endswith(".parquet") and not name.startswith(f"{HIDDEN}/")
        }
