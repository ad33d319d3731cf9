"""The metadata store in one SQLite file: the default for one machine.

The database runs in write-ahead mode with full synchronisation, so that a transaction which was answered
survives a power failure. All calls are short and run on a worker thread, one at a time and in order.
Several nodes of one machine may share the file: each looks at the revision a few times a second and, when
somebody else has written, reads the change log from where it stood.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import trio

from ottla.server.metadata.errors import LeaseExpiredError, StoreUnavailableError
from ottla.server.metadata.store import (
    NO_LEASE,
    Change,
    Compare,
    Delete,
    DeletePrefix,
    KeyValue,
    Listing,
    Operation,
    Put,
    Watch,
)
from ottla.server.metadata.watchers import Watcher, Watchers

T = TypeVar("T")

FORMAT_VERSION: Final = 1
_POLL_S: Final = 0.05
_BUSY_TIMEOUT_S: Final = 5.0
#: So many of the latest transactions stay in the change log for other nodes to read.
_CHANGE_LOG_LENGTH: Final = 10_000

_SCHEMA: Final = (
    "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, create_revision INTEGER NOT NULL, "
    "mod_revision INTEGER NOT NULL, lease INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX entries_by_lease ON entries (lease) WHERE lease <> 0",
    "CREATE TABLE changes (revision INTEGER, key TEXT, PRIMARY KEY (revision, key)) WITHOUT ROWID",
    "CREATE TABLE leases (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl_ms INTEGER NOT NULL, deadline_ms INTEGER NOT NULL)",
    "CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO state VALUES ('revision', 0)",
)


class SqliteMetadataStore:
    """A `MetadataStore` in a SQLite file; made by `open_sqlite_store`."""

    def __init__(self, connection: sqlite3.Connection, time_ms: Callable[[], int], *, shared: bool) -> None:
        self._connection = connection
        self._time_ms = time_ms
        self._shared = shared
        self._turn = trio.Lock()
        self._watchers = Watchers()
        self._seen_revision = 0
        self._closed = False

    async def get(self, key: str) -> KeyValue | None:
        def read() -> KeyValue | None:
            self._expire()
            row = self._connection.execute("SELECT * FROM entries WHERE key = ?", (key,)).fetchone()
            return None if row is None else KeyValue(*row)

        return await self._run(read)

    async def list(self, prefix: str) -> Listing:
        def read() -> Listing:
            self._expire()
            with self._connection:
                self._connection.execute("BEGIN")
                rows = self._connection.execute(
                    "SELECT * FROM entries WHERE key >= ? AND key < ? ORDER BY key", (prefix, _after(prefix))
                ).fetchall()
                return Listing(self._revision(), tuple(KeyValue(*row) for row in rows))

        return await self._run(read)

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        def write() -> int | None:
            self._expire()
            return self._write(compares, operations)

        return await self._run(write)

    @asynccontextmanager
    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Watch]:
        with self._watchers.open(prefix, after_revision) as watcher:
            yield _PollingWatch(watcher, self.refresh) if self._shared else watcher

    async def refresh(self) -> None:
        """Tell the watchers what other nodes have written since the last look."""
        await self._run(lambda: None)

    async def grant_lease(self, ttl_ms: int) -> int:
        def write() -> int:
            with self._connection:
                deadline = self._time_ms() + ttl_ms
                insert = "INSERT INTO leases (ttl_ms, deadline_ms) VALUES (?, ?) RETURNING id"
                return int(self._connection.execute(insert, (ttl_ms, deadline)).fetchone()[0])

        return await self._run(write)

    async def keep_alive(self, lease: int) -> None:
        def write() -> None:
            self._expire()
            with self._connection:
                update = "UPDATE leases SET deadline_ms = ? + ttl_ms WHERE id = ?"
                if self._connection.execute(update, (self._time_ms(), lease)).rowcount == 0:
                    raise LeaseExpiredError(f"Lease {lease} has ended.")

        await self._run(write)

    async def revoke_lease(self, lease: int) -> None:
        await self._run(lambda: self._end_leases([lease]))

    async def close(self) -> None:
        with trio.CancelScope(shield=True):
            async with self._turn:
                if not self._closed:
                    self._closed = True
                    await trio.to_thread.run_sync(self._connection.close)
        self._watchers.close()

    async def _run(self, work: Callable[[], T]) -> T:
        """Do `work` on a worker thread, alone, then tell the watchers what has changed since the last look."""
        async with self._turn:
            if self._closed:
                raise StoreUnavailableError("The metadata store is closed.")
            try:
                # Not to be abandoned: a transaction that began is waited for, even under cancellation.
                result, changes = await trio.to_thread.run_sync(lambda: (work(), self._changes()))
            except sqlite3.Error as error:
                raise StoreUnavailableError(f"The metadata store failed: {error}.") from error
            for revision, puts, deletes in changes:
                self._watchers.publish(revision, puts, deletes)
            return result

    def _revision(self) -> int:
        row = self._connection.execute("SELECT value FROM state WHERE name = 'revision'").fetchone()
        return int(row[0])

    def _write(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        execute = self._connection.execute
        with self._connection:
            execute("BEGIN IMMEDIATE")
            for compare in compares:
                row = execute("SELECT mod_revision FROM entries WHERE key = ?", (compare.key,)).fetchone()
                if (0 if row is None else row[0]) != compare.mod_revision:
                    return None
            update = "UPDATE state SET value = value + 1 WHERE name = 'revision' RETURNING value"
            revision = int(execute(update).fetchone()[0])
            for operation in operations:
                self._apply(operation, revision)
            execute("DELETE FROM changes WHERE revision <= ?", (revision - _CHANGE_LOG_LENGTH,))
        return revision

    def _apply(self, operation: Operation, revision: int) -> None:
        execute = self._connection.execute
        if isinstance(operation, Put):
            lease = operation.lease
            if lease != NO_LEASE and not execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone():
                raise LeaseExpiredError(f"Lease {lease} has ended.")
            execute(
                "INSERT INTO entries VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE "
                "SET value = excluded.value, mod_revision = excluded.mod_revision, lease = excluded.lease",
                (operation.key, operation.value, revision, revision, lease),
            )
            changed = [(operation.key,)]
        else:
            low = operation.prefix if isinstance(operation, DeletePrefix) else operation.key
            high = _after(low) if isinstance(operation, DeletePrefix) else low + "\0"
            delete = "DELETE FROM entries WHERE key >= ? AND key < ? RETURNING key"
            changed = execute(delete, (low, high)).fetchall()
        insert = "INSERT OR IGNORE INTO changes VALUES (?, ?)"
        self._connection.executemany(insert, [(revision, key) for (key,) in changed])

    def _expire(self) -> None:
        select = "SELECT id FROM leases WHERE deadline_ms <= ?"
        ended = [row[0] for row in self._connection.execute(select, (self._time_ms(),))]
        if ended:
            self._end_leases(ended)

    def _end_leases(self, leases: Sequence[int]) -> None:
        select = "SELECT key FROM entries WHERE lease = ?"
        keys = [row[0] for lease in leases for row in self._connection.execute(select, (lease,))]
        if keys:
            self._write((), [Delete(key) for key in keys])
        with self._connection:
            self._connection.executemany("DELETE FROM leases WHERE id = ?", [(lease,) for lease in leases])

    def _changes(self) -> Sequence[tuple[int, Sequence[KeyValue], Sequence[str]]]:
        """The transactions since the last look, this node's and others', as far as the change log goes back."""
        execute = self._connection.execute
        with self._connection:
            execute("BEGIN")
            revision = self._revision()
            if revision == self._seen_revision:
                return ()
            rows = execute(
                "SELECT changes.revision, changes.key, entries.* FROM changes LEFT JOIN entries USING (key) "
                "WHERE changes.revision > ? ORDER BY changes.revision, changes.key",
                (self._seen_revision,),
            ).fetchall()
        found: dict[int, tuple[list[KeyValue], list[str]]] = {}
        for change_revision, key, *entry in rows:
            puts, deletes = found.setdefault(change_revision, ([], []))
            # A key that changed again later is told with its latest state; its watchers only move ahead.
            if entry[0] is None:
                deletes.append(key)
            else:
                puts.append(KeyValue(*entry))
        if self._seen_revision < revision - _CHANGE_LOG_LENGTH:
            self._watchers.lag()
        self._seen_revision = revision
        return [(change, *found[change]) for change in sorted(found)]

    def start_watching_from_here(self) -> None:
        """Take the store's revision as the present: what came before is not told to watchers."""
        self._seen_revision = self._revision()
        self._watchers.forget_until(self._seen_revision)


class _PollingWatch:
    """A watch that also sees what other processes write."""

    def __init__(self, watcher: Watcher, refresh: Callable[[], Awaitable[None]]) -> None:
        self._watcher = watcher
        self._refresh = refresh

    async def receive(self) -> Change:
        while True:
            with trio.move_on_after(_POLL_S):
                return await self._watcher.receive()
            await self._refresh()


async def open_sqlite_store(path: Path, time_ms: Callable[[], int], *, shared: bool = False) -> SqliteMetadataStore:
    """Open the file, and make it if it is absent; raises StoreUnavailableError if it cannot be used.

    `time_ms` is the clock of leases, in wall-clock milliseconds, as nodes of the machine share them.
    `shared` says that other processes write to the file as well.
    """

    def open_file() -> SqliteMetadataStore:
        connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        store = SqliteMetadataStore(connection, time_ms, shared=shared)
        store.start_watching_from_here()
        return store

    try:
        return await trio.to_thread.run_sync(open_file)
    except sqlite3.Error as error:
        raise StoreUnavailableError(f"The metadata store {path} cannot be opened: {error}.") from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        elif version != FORMAT_VERSION:
            raise StoreUnavailableError(
                f"The metadata store {path} has format version {version} and this Ottla reads {FORMAT_VERSION}."
            )


def _after(prefix: str) -> str:
    """The least text that is greater than every text with this prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else "\U0010ffff"
