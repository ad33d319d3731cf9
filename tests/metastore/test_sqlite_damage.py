"""A damaged metadata file is refused: what it says is what was written, or it says nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random

import pytest

from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.sqlite import open_sqlite_store
from ottla.metastore.sqlite_checks import check_file
from ottla.metastore.store import Delete, DeletePrefix, Listing, Put

NOW_MS = 1_700_000_000_000


async def fill(path: Path) -> Listing:
    store = await open_sqlite_store(path, lambda: NOW_MS)
    for number in range(60):
        await store.commit((), [Put(f"/topics/{number % 40}", b"value %d" % number * 10)])
    await store.commit((), [Delete("/topics/3"), DeletePrefix("/topics/1")])
    found = await store.list("")
    await store.close()
    return found


async def listed(path: Path) -> Listing | None:
    """What the store says, None if it is refused."""
    try:
        store = await open_sqlite_store(path, lambda: NOW_MS)
    except StoreUnavailableError:
        return None
    try:
        return await store.list("")
    except StoreUnavailableError:
        return None
    finally:
        await store.close()


@pytest.mark.parametrize("seed", range(4))
async def test_a_flipped_bit_is_never_believed(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "cluster.sqlite"
    whole = await fill(path)
    content = path.read_bytes()
    rng = Random(seed)
    refused = 0
    for _ in range(100):
        bit = rng.randrange(len(content) * 8)
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        (tmp_path / "cluster.sqlite-wal").unlink(missing_ok=True)
        (tmp_path / "cluster.sqlite-shm").unlink(missing_ok=True)
        found = await listed(path)
        refused += found is None
        assert found in (None, whole), bit
    assert refused > 5


async def test_a_row_that_is_gone_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "cluster.sqlite"
    whole = await fill(path)
    assert check_file(path) is None
    assert await listed(path) == whole
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM entries WHERE key = '/topics/7'")
    connection.commit()
    connection.close()
    assert "missing" in (check_file(path) or "")
    assert await listed(path) is None


async def test_an_older_file_gets_its_checksums(tmp_path: Path) -> None:
    path = tmp_path / "cluster.sqlite"
    whole = await fill(path)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM state WHERE name = 'digest'")
    connection.execute("ALTER TABLE entries DROP COLUMN crc")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    assert check_file(path) is None
    assert await listed(path) == whole
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()
    assert check_file(path) is None
