"""SQLite between processes that come, go and are killed."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio

from ottla.metastore import file_change_notifier
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.sqlite import SqliteMetadataStore, _in_turn, open_sqlite_store
from ottla.metastore.store import Put, Watch
from tests.metastore.other_process import OtherProcess


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.sqlite"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteMetadataStore]:
    store = await open_sqlite_store(path, _now_ms)
    yield store
    await store.close()


@pytest.fixture
async def other(path: Path, store: SqliteMetadataStore) -> AsyncIterator[OtherProcess]:
    other = OtherProcess(path, _now_ms)
    yield other
    other.kill()


async def _receive_until(watch: Watch, key: str) -> None:
    with trio.fail_after(30):
        while key not in [entry.key for entry in (await watch.receive()).puts]:
            pass


async def test_a_commit_wakes_who_watches_in_another_process(store: SqliteMetadataStore, other: OtherProcess) -> None:
    async with store.watch("/", 0) as watch:
        for number in range(5):
            revision = await other.commit([], [Put("/a", b"%d" % number)])
            with trio.fail_after(30):
                assert (await watch.receive()).revision == revision


async def test_what_was_written_before_the_watch_began_is_told(store: SqliteMetadataStore, other: OtherProcess) -> None:
    revision = (await store.list("")).revision
    await other.commit([], [Put("/a", b"")])
    async with store.watch("/", revision) as watch:
        await _receive_until(watch, "/a")


async def test_who_waits_sees_nothing_of_leases_that_are_kept_alive(
    store: SqliteMetadataStore, other: OtherProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings: list[Path] = []
    monkeypatch.setattr(file_change_notifier.FileChangeNotifier, "notify", lambda self: rings.append(self._path))
    lease = await store.grant_lease(60_000)
    await store.keep_alive(lease)
    assert rings == []
    await store.commit([], [Put("/a", b"", lease)])
    assert len(rings) == 1


async def test_the_lease_of_a_process_that_was_killed_ends(path: Path) -> None:
    later_ms = 0
    store = await open_sqlite_store(path, lambda: _now_ms() + later_ms)
    other = OtherProcess(path, _now_ms)
    lease = await other.grant_lease(600_000)
    async with store.watch("/alive/", 0) as watch:
        await other.commit([], [Put("/alive/2", b"", lease)])
        await _receive_until(watch, "/alive/2")
        other.kill()
        later_ms = 599_000
        with trio.fail_after(60):
            assert (await watch.receive()).deletes == ("/alive/2",)
    await store.close()


async def test_a_lease_does_not_outlive_its_time_when_the_clock_is_set_back(path: Path) -> None:
    now_ms = 10_000_000
    store = await open_sqlite_store(path, lambda: now_ms)
    lease = await store.grant_lease(9_000)
    await store.commit([], [Put("/alive/2", b"", lease)])
    now_ms -= 3_600_000
    assert await store.get("/alive/2") is not None
    now_ms += 9_000
    assert await store.get("/alive/2") is None
    await store.close()


async def test_a_process_killed_amid_commits_leaves_whole_ones_and_the_store_goes_on(
    store: SqliteMetadataStore, path: Path
) -> None:
    keys = ["/churn/a", "/churn/b"]
    async with store.watch("/churn/", 0) as watch:
        for round_ in range(4):
            process = OtherProcess(path, _now_ms)
            process.tell("churn", keys)
            with trio.fail_after(60):
                # A different number of commits each time, so that the kill comes at another step of one.
                for _ in range(3 + 5 * round_):
                    change = await watch.receive()
                    assert len({entry.value for entry in change.puts}) == 1
            process.kill()
            entries = (await store.list("/churn/")).entries
            assert [entry.key for entry in entries] == keys
            assert len({(entry.value, entry.mod_revision) for entry in entries}) == 1
        revision = await store.commit([], [Put("/churn/last", b"")])
        await _receive_until(watch, "/churn/last")
    reopened = await open_sqlite_store(path, _now_ms)
    assert (await reopened.list("")).revision == revision
    await reopened.close()


async def test_a_commit_whose_writer_died_before_it_rang_is_seen(path: Path, store: SqliteMetadataStore) -> None:
    """The kernel closes what a killed process had open, and that is heard."""
    async with store.watch("/", 0) as watch:
        program = (
            "import os, sys, pathlib, trio\n"
            "from ottla.metastore.file_change_notifier import FileChangeNotifier\n"
            "from ottla.metastore.sqlite import open_sqlite_store\n"
            "from ottla.metastore.store import Put\n"
            "FileChangeNotifier.notify = lambda self: os.kill(os.getpid(), 9)\n"
            "async def main():\n"
            "    store = await open_sqlite_store(pathlib.Path(sys.argv[1]), lambda: 0)\n"
            "    await store.commit([], [Put('/a', b'')])\n"
            "trio.run(main)\n"
        )
        await trio.to_thread.run_sync(lambda: subprocess.run([sys.executable, "-c", program, str(path)], check=False))
        await _receive_until(watch, "/a")


async def test_a_folder_with_a_very_long_name(tmp_path: Path) -> None:
    path = tmp_path.joinpath(*["n" * 180] * 2, "cluster.sqlite")
    path.parent.mkdir(parents=True)
    store = await open_sqlite_store(path, _now_ms)
    other = OtherProcess(path, _now_ms)
    async with store.watch("/", 0) as watch:
        await other.commit([], [Put("/a", b"")])
        await _receive_until(watch, "/a")
    await other.close()
    await store.close()


async def test_a_full_disk_refuses_commits_and_nothing_else(store: SqliteMetadataStore, other: OtherProcess) -> None:
    await other.commit([], [Put("/a", b"before")])
    await other.ask("limit_file_size", 100_000)
    with pytest.raises(StoreUnavailableError):
        await other.commit([], [Put("/a", b"x" * 500_000)])
    entry = await other.get("/a")
    assert entry is not None
    assert entry.value == b"before"
    assert await store.commit([], [Put("/b", b"y" * 500_000)]) is not None
    await other.ask("limit_file_size", 100_000_000)
    assert await other.commit([], [Put("/a", b"after")]) is not None


async def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be opened"):
        await open_sqlite_store(Path("/proc/cluster.sqlite"), _now_ms)
    with pytest.raises(StoreUnavailableError, match="cannot be opened"):
        await open_sqlite_store(tmp_path / "absent" / "cluster.sqlite", _now_ms)


async def test_without_inotify_changes_are_looked_for(
    store: SqliteMetadataStore,
    other: OtherProcess,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(_path: Path) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(file_change_notifier, "_watch", full)
    async with store.watch("/", 0) as watch:
        await other.commit([], [Put("/a", b"")])
        await _receive_until(watch, "/a")
        await store.commit([], [Put("/b", b"")])
        await _receive_until(watch, "/b")
    assert "inotify cannot be used (Too many open files)" in caplog.text


async def test_an_ear_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    one = file_change_notifier.FileChangeNotifier(tmp_path)
    with one.watch() as file_watch:
        one.notify()
        await file_watch.wait()
        with trio.move_on_after(0.01) as scope:
            await file_watch.wait()
        assert scope.cancelled_caught
    assert len(os.listdir("/dev/fd")) == before


def test_an_opening_waits_for_another_one() -> None:
    """SQLite does not wait by itself where two processes change the journal's mode of a new file: about once in 200."""

    def failing(code: int, times: int) -> Callable[[], None]:
        errors = iter([code] * times)

        def work() -> None:
            for each in errors:
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = each
                raise error

        return work

    _in_turn(failing(sqlite3.SQLITE_BUSY, 3))
    _in_turn(failing(sqlite3.SQLITE_BUSY_RECOVERY, 1))
    with pytest.raises(sqlite3.OperationalError):
        _in_turn(failing(sqlite3.SQLITE_CANTOPEN, 1))
