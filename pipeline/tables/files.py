"""Small files and renames on whatever file system Spark's paths name: local, HDFS, object stores.

They go through Hadoop's FileSystem, as Spark's own do, so that one path means one place.
"""

# ruff: noqa: SLF001 - pyspark's gateway to the JVM has no public name

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ottla.pipeline.tables.local_files import replace_text

__all__ = ["FileSystem"]


class FileSystem:
    """The file system of one path."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        root = self._path(path)
        self._fs = root.getFileSystem(spark._jsc.hadoopConfiguration())

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._path(path)))

    def read_text(self, path: str) -> str | None:
        """The file's text; None if there is no such file."""
        if not self.exists(path):
            return None
        stream = self._fs.open(self._path(path))
        try:
            data: bytes = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
        finally:
            stream.close()
        return bytes(data).decode()

    def write_text(self, path: str, text: str) -> None:
        """Write a file whole: it appears, or replaces the one before, in one step where the file system can do that.

        Local disks and HDFS can. Elsewhere a kill may leave none, if there was one before.
        """
        if (local := self.local(path)) is not None:
            replace_text(local, text)
            return
        beside = f"{path}.new"
        stream = self._fs.create(self._path(beside), True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        # Hadoop's FileSystem does not rename over a file, its FileContext does.
        options = self._new_options()
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._fs.getUri(), self._fs.getConf())
        context.rename(self._path(beside), self._path(path), options)

    def local(self, path: str) -> Path | None:
        """The path on the driver's own disk; None for any other file system."""
        qualified = self._fs.makeQualified(self._path(path)).toUri()
        return Path(qualified.getPath()) if qualified.getScheme() == "file" else None

    def _new_options(self) -> Any:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        return options

    def rename(self, source: str, target: str) -> None:
        self._fs.mkdirs(self._path(target).getParent())
        if not self._fs.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} could not be renamed to {target}")

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all in it, if it is there."""
        self._fs.delete(self._path(path), True)

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none if there is no such folder."""
        if not self.exists(folder):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(self._path(folder)))

    def files(self, folder: str) -> dict[str, int]:
        """Every file below a folder, by its path relative to it, and its size in bytes."""
        if not self.exists(folder):
            return {}
        base = self._fs.makeQualified(self._path(folder)).toUri()
        found: dict[str, int] = {}
        listed = self._fs.listFiles(self._path(folder), True)
        while listed.hasNext():
            status = listed.next()
            found[base.relativize(status.getPath().toUri()).getPath()] = int(status.getLen())
        return found

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)
