"""One Iceberg table, and its commits: each of them is there whole, or not at all, and no batch is committed twice.

A commit of a batch sets a property of the table to the batch's number, in the same step in which its snapshot becomes
the current one; and it holds only if no other commit came in between. So a batch that is repeated is seen, also when
the snapshot that brought it has expired. The snapshot's summary says the same, for people who look at the history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ottla.pipeline.tables.errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table, Transaction

__all__ = ["Batch", "IcebergTable", "Rewrite"]

BATCH_PROPERTY: Final = "ottla.batch."
"""What a table's property is called that holds the number of the last batch; the checkpoint's id follows."""

FILE_SIZE_BYTES: Final = 128 * 1024 * 1024
"""How large a data file is to become, as Arrow; PyIceberg does not know yet how large it will be as Parquet."""
SMALL_SIZE_BYTES: Final = 16 * 1024 * 1024
"""Files below it are worth being put together."""
TRIES: Final = 5

_SETTINGS: Final = {
    "write.target-file-size-bytes": str(FILE_SIZE_BYTES),
    # One metadata file a commit would be kept forever.
    "write.metadata.delete-after-commit.enabled": "true",
}

Batch = tuple[str, int]
"""A checkpoint's id, and the number of a batch."""
Rewrite = tuple[Sequence["DataFile"], Sequence["DataFile"]]
"""The files that go, and those that come in their place."""


class IcebergTable:
    """The table of a name, such as `shop.orders`, which may not be there yet."""

    def __init__(self, catalogue: Catalog, name: str, partition_by: Sequence[str] = ()) -> None:
        self.name = name
        self._catalogue = catalogue
        self._partition_by = list(partition_by)

    def load(self) -> Table | None:
        """The table as it is now; None if there is none."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        try:
            return self._catalogue.load_table(self.name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def fitted(self, schema: pa.Schema) -> Table:
        """The table with all these columns: it is created, or gets those that it lacks, or wider ones.

        TableError if its columns cannot become those.
        """
        from pyiceberg.exceptions import TableAlreadyExistsError, ValidationError

        table = self.load()
        if table is None:
            with suppress(TableAlreadyExistsError):
                self._create(schema)
            table = self._catalogue.load_table(self.name)
        try:
            with table.update_schema() as update:
                update.union_by_name(schema)
        except (ValidationError, ValueError) as error:
            raise TableError(f"The columns of table {self.name} cannot become those of the records: {error}") from error
        return table

    def commit(self, batch: Batch, change: Callable[[Table], Rewrite]) -> None:
        """Commit a batch, unless it is in the table.

        `change` says, of the table as it is, which files to replace by which; it is asked again when another commit
        came first. What it wrote is taken away again where it does not get into the table.
        """
        from pyiceberg.exceptions import CommitFailedException

        for left in reversed(range(TRIES)):
            table = self._once(self._catalogue.load_table(self.name))
            if self.has(table, batch):
                return
            removed, added = change(table)
            app_id, batch_id = batch
            try:
                with table.transaction() as transaction:
                    transaction.set_properties({BATCH_PROPERTY + app_id: str(batch_id)})
                    _replace(transaction, removed, added, {"ottla.app-id": app_id, "ottla.batch-id": str(batch_id)})
            except CommitFailedException:
                _delete(table, added)
                if not left:
                    raise
            else:
                return

    def has(self, table: Table, batch: Batch) -> bool:
        """Whether a batch is in the table: batches of a checkpoint come in the order of their numbers."""
        app_id, batch_id = batch
        return int(table.properties.get(BATCH_PROPERTY + app_id, -1)) >= batch_id

    def compact(self, least: int, rewrite: Callable[[Table, list[list[FileScanTask]]], list[DataFile]]) -> bool:
        """Have the small files of each partition put together, where there are so many; whether that was done.

        Where another commit comes first, it is left for the next time.
        """
        from pyiceberg.exceptions import CommitFailedException

        table = self.load()
        groups = [] if table is None else small_files(table, least)
        if table is None or not groups:
            return False
        table = self._once(table)
        added = rewrite(table, groups)
        try:
            with table.transaction() as transaction:
                removed = [scan.file for group in groups for scan in group]
                _replace(transaction, removed, added, {"ottla.compaction": "true"})
        except CommitFailedException:
            _delete(table, added)
            return False
        return True

    def _create(self, schema: pa.Schema) -> None:
        namespace = self.name.rpartition(".")[0]
        self._catalogue.create_namespace_if_not_exists(namespace)
        transaction = self._catalogue.create_table_transaction(self.name, schema, properties=_SETTINGS)
        if self._partition_by:
            with transaction.update_spec() as update:
                for column in self._partition_by:
                    update.add_identity(column)
        transaction.commit_transaction()

    @staticmethod
    def _once(table: Table) -> Table:
        """The same, for commits that are tried once: PyIceberg would try again without asking what came in between."""
        properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        return table


def small_files(table: Table, least: int) -> list[list[FileScanTask]]:
    """Groups of at least this many small files that one file could hold, each of one partition."""
    spec_id = table.spec().spec_id
    by_partition: dict[tuple[Any, ...], list[FileScanTask]] = defaultdict(list)
    for scan in table.scan().plan_files():
        if scan.file.file_size_in_bytes < SMALL_SIZE_BYTES and scan.file.spec_id == spec_id:
            by_partition[tuple(scan.file.partition)].append(scan)
    groups = []
    for scans in by_partition.values():
        if len(scans) >= least:
            groups += _bins(sorted(scans, key=lambda scan: str(scan.file.file_path)))
    return groups


def _bins(scans: list[FileScanTask]) -> list[list[FileScanTask]]:
    """The files in their order, so many together that they become one of a good size; none alone."""
    found: list[list[FileScanTask]] = [[]]
    size_bytes = 0
    for scan in scans:
        if found[-1] and size_bytes + scan.file.file_size_in_bytes > 2 * SMALL_SIZE_BYTES:
            found.append([])
            size_bytes = 0
        found[-1].append(scan)
        size_bytes += scan.file.file_size_in_bytes
    return [group for group in found if len(group) > 1]


def _replace(
    transaction: Transaction, removed: Sequence[DataFile], added: Sequence[DataFile], summary: Mapping[str, str]
) -> None:
    if removed:
        with transaction.update_snapshot(snapshot_properties=dict(summary)).overwrite() as overwrite:
            for file in removed:
                overwrite.delete_data_file(file)
            for file in added:
                overwrite.append_data_file(file)
    elif added:
        with transaction.update_snapshot(snapshot_properties=dict(summary)).merge_append() as append:
            for file in added:
                append.append_data_file(file)


def _delete(table: Table, files: Sequence[DataFile]) -> None:
    """Take away files that came into no snapshot."""
    for file in files:
        with suppress(OSError):
            table.io.delete(file.file_path)
