"""The metadata store in one SQLite file: the default for one machine.

The database runs in write-ahead mode with full synchronisation, so that a transaction which was answered
survives a power failure. All calls are short and run on a worker thread, one at a time and in order.

Several processes of one machine may share the file. A writer notifies of the change (`file_change_notifier.py`), and
the watchers then read the change log from where they had stopped. Each of them knows when the next lease ends unless it
is kept alive, and looks then, some milliseconds apart: the first one ends it. Keeping a lease alive is not synchronised
with the disk, since a power failure ends everything that a lease could stand for."""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final, TypeVar

import trio

from ottla.metastore.errors import LeaseExpiredError, StoreUnavailableError
from ottla.metastore.file_change_notifier import FileChangeNotifier, FileWatch
from ottla.metastore.sqlite_checks import (
    COLUMNS,
    check_all,
    checked,
    row_crc,
    sealed_revision,
    upgrade_from_1,
)
from ottla.metastore.store import (
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
from ottla.metastore.watchers import Watcher, Watchers
from ottla.storage.disk.private import make_private_file

T = TypeVar("T")

MakeRoom = Callable[[], Awaitable[bool]]

#: How a full disk shows: when writing, or when the files beside the database cannot be created.
_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN})

FORMAT_VERSION: Final = 2
_BUSY_TIMEOUT_S: Final = 5.0
_BUSY_PAUSE_S: Final = 0.01
#: This many of the latest transactions stay in the change log for other nodes to read.
_CHANGE_LOG_LENGTH: Final = 10_000
#: The processes that share the file look for ended leases at random times within this, so that one does the work.
_EXPIRY_JITTER_S: Final = 0.03
#: A deadline is never further away than its lease's time to live, unless the wall clock was set back.
_CLOCK_SLACK_MS: Final = 1_000

_SCHEMA: Final = (
    "CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL, create_revision INTEGER NOT NULL, "
    "mod_revision INTEGER NOT NULL, lease INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX entries_by_lease ON entries (lease) WHERE lease <> 0",
    "CREATE TABLE changes (revision INTEGER, key TEXT, PRIMARY KEY (revision, key)) WITHOUT ROWID",
    "CREATE TABLE leases (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl_ms INTEGER NOT NULL, deadline_ms INTEGER NOT NULL)",
    "CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO state VALUES ('revision', 0)",
    f"INSERT INTO state VALUES ('digest', {sealed_revision(0)})",
)


class SqliteMetadataStore:
    """A `MetadataStore` in a SQLite file; made by `open_sqlite_store`."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, time_ms: Callable[[], int], make_room: MakeRoom
    ) -> None:
        self._connection = connection
        self._make_room = make_room
        self._time_ms = time_ms
        self._file_changes = FileChangeNotifier(path)
        #: When the first lease ends, as of the last look; None while there is none.
        self._next_deadline_ms: int | None = None
        #: Whether there is a new revision that others have to be told about.
        self._has_written = False
        self._turn = trio.Lock()
        self._watchers = Watchers()
        self._seen_revision = 0
        self._closed = False

    async def get(self, key: str) -> KeyValue | None:
        def read() -> KeyValue | None:
            self._expire()
            select = f"SELECT {COLUMNS} FROM entries WHERE key = ?"
            row = self._connection.execute(select, (key,)).fetchone()
            return None if row is None else checked(row)

        return await self._run(read)

    async def list(self, prefix: str) -> Listing:
        def read() -> Listing:
            self._expire()
            with self._connection:
                self._connection.execute("BEGIN")
                rows = self._connection.execute(
                    f"SELECT {COLUMNS} FROM entries WHERE key >= ? AND key < ? ORDER BY key",
                    (prefix, _after(prefix)),
                ).fetchall()
                revision = self._revision()
                return Listing(revision, tuple(map(checked, rows)), revision)

        return await self._run(read)

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        def write() -> int | None:
            self._expire()
            return self._write(compares, operations)

        return await self._run(write)

    @asynccontextmanager
    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Watch]:
        with self._watchers.open(prefix, after_revision) as watcher, self._file_changes.watch() as file_watch:
            # What others wrote before this process listened.
            await self.refresh()
            yield _SharedWatch(self, watcher, file_watch)

    async def refresh(self) -> None:
        """Tell the watchers what other processes have written since the last look, and which leases have ended."""
        await self._run(self._expire)

    def seconds_to_expiry(self) -> float:
        """How long until leases are to be looked at, if nobody keeps them alive; infinity while there are none."""
        if self._next_deadline_ms is None:
            return math.inf
        return max(self._next_deadline_ms - self._time_ms(), 0) / 1000 + random.uniform(0, _EXPIRY_JITTER_S)

    async def grant_lease(self, ttl_ms: int) -> int:
        def write() -> int:
            with self._unsynchronised(), self._connection:
                deadline = self._time_ms() + ttl_ms
                insert = "INSERT INTO leases (ttl_ms, deadline_ms) VALUES (?, ?) RETURNING id"
                return int(self._connection.execute(insert, (ttl_ms, deadline)).fetchone()[0])

        return await self._run(write)

    async def keep_alive(self, lease: int) -> None:
        def write() -> None:
            self._expire()
            with self._unsynchronised(), self._connection:
                update = "UPDATE leases SET deadline_ms = ? + ttl_ms WHERE id = ?"
                if self._connection.execute(update, (self._time_ms(), lease)).rowcount == 0:
                    raise LeaseExpiredError(f"Lease {lease} has ended.")

        await self._run(write)

    async def revoke_lease(self, lease: int) -> None:
        def write() -> None:
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._end_leases([lease])

        await self._run(write)

    async def close(self) -> None:
        with trio.CancelScope(shield=True):
            async with self._turn:
                if not self._closed:
                    self._closed = True
                    self._watchers.close()
                    await trio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        # Receivers are woken by this, or by the closed file, and find that their watch has ended.
        self._file_changes.notify()
        self._connection.close()

    async def _run(self, work: Callable[[], T]) -> T:
        """Do `work` on a worker thread, alone, then tell the watchers what has changed since the last look."""
        async with self._turn:
            if self._closed:
                raise StoreUnavailableError("The metadata store is closed.")
            try:
                result, changes = await self._work(work)
            except sqlite3.Error as error:
                raise StoreUnavailableError(f"The metadata store failed: {error}.") from error
            for revision, puts, deletes in changes:
                self._watchers.publish(revision, puts, deletes)
            return result

    def _do(self, work: Callable[[], T]) -> tuple[T, Sequence[tuple[int, Sequence[KeyValue], Sequence[str]]]]:
        try:
            result = work()
        finally:
            if self._has_written:
                self._has_written = False
                self._file_changes.notify()
        return result, self._changes()

    @contextmanager
    def _unsynchronised(self) -> Iterator[None]:
        """Writes inside are durable once the next transaction is, and never half written: a crash of the machine may
        lose them, a crash of this process does not."""
        self._connection.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._connection.execute("PRAGMA synchronous = FULL")

    async def _work(self, work: Callable[[], T]) -> tuple[T, Sequence[tuple[int, Sequence[KeyValue], Sequence[str]]]]:
        """Do it on a worker thread, and again if the disk was full and room could be made. What fails does nothing."""
        try:
            # Not to be abandoned: a transaction that began is waited for, even under cancellation.
            return await trio.to_thread.run_sync(self._do, work)
        except sqlite3.Error as error:
            if not _is_full(error) or not await self._make_room():
                raise
        return await trio.to_thread.run_sync(self._do, work)

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
            return self._apply_all(operations)

    def _apply_all(self, operations: Sequence[Operation]) -> int:
        """One revision, within a transaction that has begun."""
        self._has_written = True
        execute = self._connection.execute
        update = "UPDATE state SET value = value + 1 WHERE name = 'revision' RETURNING value"
        revision = int(execute(update).fetchone()[0])
        digest = sealed_revision(revision - 1) ^ sealed_revision(revision)
        for operation in operations:
            digest ^= self._apply(operation, revision)
        (before,) = execute("SELECT value FROM state WHERE name = 'digest'").fetchone()
        execute("UPDATE state SET value = ? WHERE name = 'digest'", (before ^ digest,))
        execute("DELETE FROM changes WHERE revision <= ?", (revision - _CHANGE_LOG_LENGTH,))
        return revision

    def _apply(self, operation: Operation, revision: int) -> int:
        """Apply one operation; returns the change of the digest."""
        digest = 0
        execute = self._connection.execute
        if isinstance(operation, Put):
            lease = operation.lease
            if lease != NO_LEASE and not execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone():
                raise LeaseExpiredError(f"Lease {lease} has ended.")
            select = "SELECT create_revision, crc FROM entries WHERE key = ?"
            created, digest = execute(select, (operation.key,)).fetchone() or (revision, 0)
            row = (operation.key, operation.value, created, revision, lease)
            crc = row_crc(*row)
            digest ^= crc
            execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?)", (*row, crc))
            changed = [(operation.key,)]
        else:
            low = operation.prefix if isinstance(operation, DeletePrefix) else operation.key
            high = _after(low) if isinstance(operation, DeletePrefix) else low + "\0"
            delete = "DELETE FROM entries WHERE key >= ? AND key < ? RETURNING key, crc"
            changed = []
            for key, crc in execute(delete, (low, high)).fetchall():
                changed.append((key,))
                digest ^= crc
        insert = "INSERT OR IGNORE INTO changes VALUES (?, ?)"
        self._connection.executemany(insert, [(revision, key) for (key,) in changed])
        return digest

    def _expire(self) -> None:
        execute, now_ms = self._connection.execute, self._time_ms()
        leases = execute("SELECT deadline_ms, ttl_ms FROM leases").fetchall()
        if any(not now_ms < deadline_ms <= now_ms + ttl_ms + _CLOCK_SLACK_MS for deadline_ms, ttl_ms in leases):
            with self._connection:
                # Only in here can nobody else keep one alive meanwhile, or have ended it already.
                execute("BEGIN IMMEDIATE")
                set_back = "UPDATE leases SET deadline_ms = ? + ttl_ms WHERE deadline_ms > ? + ttl_ms"
                execute(set_back, (now_ms, now_ms + _CLOCK_SLACK_MS))
                select = "SELECT id FROM leases WHERE deadline_ms <= ?"
                self._end_leases([row[0] for row in execute(select, (now_ms,))])
            leases = execute("SELECT deadline_ms FROM leases").fetchall()
        self._next_deadline_ms = min((deadline_ms for deadline_ms, *_ in leases), default=None)

    def _end_leases(self, leases: Sequence[int]) -> None:
        """Within a transaction that has begun: a lease and its keys end together."""
        select = "SELECT key FROM entries WHERE lease = ?"
        keys = [row[0] for lease in leases for row in self._connection.execute(select, (lease,))]
        if keys:
            self._apply_all([Delete(key) for key in keys])
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
                f"SELECT changes.revision, changes.key, {COLUMNS} FROM changes LEFT JOIN entries USING (key) "
                "WHERE changes.revision > ? ORDER BY changes.revision, changes.key",
                (self._seen_revision,),
            ).fetchall()
        found: dict[int, tuple[list[KeyValue], list[str]]] = {}
        for change_revision, key, *columns in rows:
            entry = tuple(columns)
            puts, deletes = found.setdefault(change_revision, ([], []))
            # A key that has changed again since is reported with its latest state; watchers only move ahead.
            if entry[0] is None:
                deletes.append(key)
            else:
                puts.append(checked(entry))
        if self._seen_revision < revision - _CHANGE_LOG_LENGTH:
            self._watchers.lag()
        self._seen_revision = revision
        return [(change, *found[change]) for change in sorted(found)]

    def start_watching_from_here(self) -> None:
        """Take the store's revision as the present: watchers are not told what came before."""
        self._seen_revision = self._revision()
        self._watchers.forget_until(self._seen_revision)


class _SharedWatch:
    """A watch that also sees what other processes write, and which leases end."""

    def __init__(self, store: SqliteMetadataStore, watcher: Watcher, file_watch: FileWatch) -> None:
        self._store = store
        self._watcher = watcher
        self._file_watch = file_watch

    async def receive(self) -> Change:
        await trio.lowlevel.checkpoint()
        while True:
            with suppress(trio.WouldBlock):
                return self._watcher.receive_nowait()
            # Own changes are heard as well.
            with trio.move_on_after(self._store.seconds_to_expiry()):
                await self._file_watch.wait()
            await self._store.refresh()


async def _no_room() -> bool:
    return False


def _is_full(error: sqlite3.Error) -> bool:
    """Whether the disk is full, as far as SQLite tells."""
    return getattr(error, "sqlite_errorcode", None) in _FULL


async def open_sqlite_store(
    path: Path, time_ms: Callable[[], int], *, make_room: MakeRoom = _no_room
) -> SqliteMetadataStore:
    """Open the file, and create it if it is absent; raises StoreUnavailableError if it cannot be used.

    `time_ms` is the clock of leases, in wall-clock milliseconds: the processes that share the file share it.
    `make_room` is asked when the disk is full, and says whether to try again.
    """

    def open_file() -> SqliteMetadataStore:
        make_private_file(path)  # the files beside it get its modes
        connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            _in_turn(lambda: _prepare(connection, path))
            check_all(connection)
        except BaseException:
            connection.close()
            raise
        store = SqliteMetadataStore(connection, path, time_ms, make_room)
        store.start_watching_from_here()
        return store

    try:
        try:
            return await trio.to_thread.run_sync(open_file)
        except sqlite3.Error as error:
            if not _is_full(error) or not await make_room():
                raise
        return await trio.to_thread.run_sync(open_file)
    except sqlite3.Error as error:
        raise StoreUnavailableError(f"The metadata store {path} cannot be opened: {error}.") from error


def _in_turn(work: Callable[[], None]) -> None:
    """Try again while others open the file: SQLite does not wait by itself when two change the journal's mode."""
    give_up_at = monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            # The low byte is the error, the others say more about it.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY or monotonic() >= give_up_at:
                raise
        sleep(_BUSY_PAUSE_S)


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
        elif version == 1:
            upgrade_from_1(connection)
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        elif version != FORMAT_VERSION:
            raise StoreUnavailableError(
                f"The metadata store {path} has format version {version} and this Ottla reads {FORMAT_VERSION}."
            )


def _after(prefix: str) -> str:
    """The least text that is greater than every text with this prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else "\U0010ffff"
