"""What every implementation of the metadata store has to do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.metastore.address import parse_metadata_address
from ottla.metastore.errors import LeaseExpiredError, StoreUnavailableError, WatchLaggedError
from ottla.metastore.etcd import open_etcd_store
from ottla.metastore.etcd_client import EtcdAccess
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.sqlite import open_sqlite_store
from ottla.metastore.store import (
    NO_LEASE,
    WATCH_BUFFER,
    Change,
    Compare,
    Delete,
    DeletePrefix,
    MetadataStore,
    Operation,
    Put,
    Watch,
)
from tests.etcd import Etcd, needs_etcd
from tests.metastore.other_process import OtherProcess, TwoProcesses


class Time:
    """A wall clock in the test's hand, in milliseconds: it stands still unless it is told otherwise."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self._flows_from: float | None = None

    def begin_to_flow(self) -> None:
        self._flows_from = monotonic()

    def ms(self) -> int:
        return self.now_ms + (int((monotonic() - self._flows_from) * 1000) if self._flows_from else 0)


@pytest.fixture
def time() -> Time:
    return Time()


async def _open(kind: str, path: Path, time: Time) -> MetadataStore:
    if kind == "memory":
        return MemoryMetadataStore(time.ms)
    store = await open_sqlite_store(path / "cluster.sqlite", time.ms)
    return store if kind == "sqlite" else TwoProcesses(store, OtherProcess(path / "cluster.sqlite", time.ms))


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path_factory.mktemp("etcd"))
    etcd.start()
    yield etcd
    etcd.close()


@pytest.fixture(params=["memory", "sqlite", "sqlite in two processes", pytest.param("etcd", marks=needs_etcd)])
async def store(request: pytest.FixtureRequest, tmp_path: Path, time: Time) -> AsyncIterator[MetadataStore]:
    if request.param == "etcd":
        address = parse_metadata_address(f"etcd://{request.getfixturevalue('etcd').hosts}/{uuid4().hex}")
        assert address is not None
        store: MetadataStore = await open_etcd_store(address, EtcdAccess())
    else:
        store = await _open(request.param, tmp_path, time)
    yield store
    await store.close()


@pytest.fixture(params=["memory", "sqlite", "sqlite in two processes"])
async def timed_store(request: pytest.FixtureRequest, tmp_path: Path, time: Time) -> AsyncIterator[MetadataStore]:
    store = await _open(request.param, tmp_path, time)
    yield store
    await store.close()


async def test_an_absent_key_is_none(store: MetadataStore) -> None:
    assert await store.get("/nothing") is None


async def test_a_key_keeps_its_create_revision_while_it_changes(store: MetadataStore) -> None:
    first = await store.commit([], [Put("/a", b"1")])
    second = await store.commit([], [Put("/a", b"2")])
    entry = await store.get("/a")
    assert entry is not None
    assert (entry.value, entry.create_revision, entry.mod_revision) == (b"2", first, second)


async def test_a_key_that_comes_back_is_created_anew(store: MetadataStore) -> None:
    await store.commit([], [Put("/a", b"1")])
    await store.commit([], [Delete("/a")])
    third = await store.commit([], [Put("/a", b"3")])
    entry = await store.get("/a")
    assert entry is not None
    assert (entry.create_revision, entry.mod_revision) == (third, third)


async def test_each_transaction_is_one_higher_revision(store: MetadataStore) -> None:
    start = (await store.list("")).revision
    assert await store.commit([], [Put("/a", b""), Put("/b", b"")]) == start + 1
    assert await store.commit([], [Put("/c", b"")]) == start + 2
    assert (await store.list("")).revision == start + 2


async def test_create_only_if_absent(store: MetadataStore) -> None:
    assert await store.commit([Compare("/a", 0)], [Put("/a", b"mine")]) is not None
    assert await store.commit([Compare("/a", 0)], [Put("/a", b"yours")]) is None
    entry = await store.get("/a")
    assert entry is not None
    assert entry.value == b"mine"


async def test_a_failed_compare_changes_nothing_at_all(store: MetadataStore) -> None:
    revision = await store.commit([], [Put("/a", b"1")])
    assert revision is not None
    assert await store.commit([Compare("/a", revision), Compare("/b", 7)], [Put("/c", b""), Delete("/a")]) is None
    listing = await store.list("/")
    assert [entry.key for entry in listing.entries] == ["/a"]
    assert listing.revision == revision


async def test_a_listing_is_sorted_and_keeps_to_its_prefix(store: MetadataStore) -> None:
    keys = ["/t/b", "/t/a", "/t", "/t/", "/t0", "/s/z", "/t/é"]
    await store.commit([], [Put(key, b"") for key in keys])
    assert [entry.key for entry in (await store.list("/t/")).entries] == ["/t/", "/t/a", "/t/b", "/t/é"]
    assert len((await store.list("")).entries) == len(keys)


async def test_delete_prefix_takes_what_is_below_and_nothing_else(store: MetadataStore) -> None:
    await store.commit([], [Put(key, b"") for key in ("/p/1", "/p/2", "/p", "/q")])
    await store.commit([], [DeletePrefix("/p/")])
    assert [entry.key for entry in (await store.list("/")).entries] == ["/p", "/q"]


async def test_one_of_many_racing_writers_wins(store: MetadataStore) -> None:
    results: list[int | None] = []

    async def race(number: int) -> None:
        results.append(await store.commit([Compare("/lock", 0)], [Put("/lock", b"%d" % number)]))

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(race, number)
    assert len([result for result in results if result is not None]) == 1


async def test_a_watch_sees_each_later_change_under_its_prefix_in_order(store: MetadataStore) -> None:
    await store.commit([], [Put("/w/before", b"")])
    revision = (await store.list("/w/")).revision
    async with store.watch("/w/", revision) as watch:
        await store.commit([], [Put("/w/a", b"1"), Put("/other", b"")])
        await store.commit([], [Put("/other", b"2")])
        await store.commit([], [Delete("/w/before"), Delete("/w/absent")])
        first = await watch.receive()
        second = await watch.receive()
    assert [entry.key for entry in first.puts] == ["/w/a"]
    assert first.revision == revision + 1
    assert (second.revision, second.puts, second.deletes) == (revision + 3, (), ("/w/before",))


async def test_a_watch_loses_nothing_between_the_listing_and_its_beginning(store: MetadataStore) -> None:
    revision = (await store.list("")).revision
    await store.commit([], [Put("/between", b"")])
    async with store.watch("", revision) as watch:
        change = await watch.receive()
    assert [entry.key for entry in change.puts] == ["/between"]


async def test_a_watcher_that_falls_behind_is_told_to_list_again(timed_store: MetadataStore) -> None:
    revision = (await timed_store.list("")).revision
    async with timed_store.watch("", revision) as watch:
        for number in range(WATCH_BUFFER + 2):
            await timed_store.commit([], [Put("/k", b"%d" % number)])
        with pytest.raises(WatchLaggedError):
            await _receive(watch, WATCH_BUFFER + 1)


async def _receive(watch: Watch, count: int) -> None:
    for _ in range(count):
        await watch.receive()


async def test_keys_of_a_lease_go_when_it_ends(timed_store: MetadataStore, time: Time) -> None:
    lease = await timed_store.grant_lease(10_000)
    await timed_store.commit([], [Put("/brokers/1", b"", lease), Put("/brokers/2", b"")])
    time.now_ms += 9_999
    assert await timed_store.get("/brokers/1") is not None
    time.now_ms += 1
    assert await timed_store.get("/brokers/1") is None
    assert await timed_store.get("/brokers/2") is not None
    with pytest.raises(LeaseExpiredError):
        await timed_store.keep_alive(lease)


async def test_a_lease_that_is_kept_alive_does_not_end(timed_store: MetadataStore, time: Time) -> None:
    lease = await timed_store.grant_lease(10_000)
    await timed_store.commit([], [Put("/brokers/1", b"", lease)])
    for _ in range(3):
        time.now_ms += 9_000
        await timed_store.keep_alive(lease)
    assert await timed_store.get("/brokers/1") is not None


async def test_a_watch_sees_the_end_of_a_lease(store: MetadataStore, time: Time) -> None:
    lease = await store.grant_lease(10)
    await store.commit([], [Put("/brokers/1", b"", lease)])
    async with store.watch("/brokers/", (await store.list("")).revision) as watch:
        await store.revoke_lease(lease)
        await store.revoke_lease(lease)
        assert (await watch.receive()).deletes == ("/brokers/1",)


async def test_who_waits_sees_the_end_of_a_lease(timed_store: MetadataStore, time: Time) -> None:
    lease = await timed_store.grant_lease(50)
    await timed_store.commit([], [Put("/brokers/1", b"", lease)])
    async with timed_store.watch("/brokers/", (await timed_store.list("")).revision) as watch:
        time.begin_to_flow()
        with trio.fail_after(30):
            assert (await watch.receive()).deletes == ("/brokers/1",)


async def test_a_watch_that_is_cancelled_loses_nothing(store: MetadataStore) -> None:
    async with store.watch("", (await store.list("")).revision) as watch:
        with trio.move_on_after(0.001):
            await watch.receive()
        await store.commit([], [Put("/a", b"")])
        with trio.CancelScope() as scope:
            scope.cancel()
            await watch.receive()
        assert [entry.key for entry in (await watch.receive()).puts] == ["/a"]


async def test_two_watches_see_the_same(store: MetadataStore) -> None:
    revision = (await store.list("")).revision
    async with store.watch("/a", revision) as one, store.watch("/", revision) as other, trio.open_nursery() as nursery:
        seen: list[Change] = []

        async def receive(watch: Watch) -> None:
            seen.append(await watch.receive())

        nursery.start_soon(receive, one)
        nursery.start_soon(receive, other)
        await trio.testing.wait_all_tasks_blocked()
        await store.commit([], [Put("/a", b"")])
    assert [change.revision for change in seen] == [revision + 1] * 2


async def test_a_put_with_an_ended_lease_is_refused_entirely(timed_store: MetadataStore, time: Time) -> None:
    lease = await timed_store.grant_lease(10)
    time.now_ms += 10
    with pytest.raises(LeaseExpiredError):
        await timed_store.commit([], [Put("/a", b""), Put("/b", b"", lease)])
    assert (await timed_store.list("")).entries == ()


async def test_closing_ends_the_watchers(store: MetadataStore) -> None:
    async with store.watch("", 0) as watch:
        await store.close()
        with pytest.raises(StoreUnavailableError):
            await watch.receive()


async def test_closing_ends_who_waits(store: MetadataStore) -> None:
    async with store.watch("", 0) as watch, trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(StoreUnavailableError):
                await watch.receive()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await store.close()


_KEYS = st.sampled_from(["/a", "/a/1", "/a/2", "/b", "/b/1"])
_OPERATIONS = st.lists(
    st.one_of(
        st.builds(Put, _KEYS, st.binary(max_size=3), st.just(NO_LEASE)),
        st.builds(Delete, _KEYS),
        st.builds(DeletePrefix, st.sampled_from(["/a/", "/b"])),
    ),
    max_size=3,
    unique_by=lambda operation: operation.prefix if isinstance(operation, DeletePrefix) else operation.key,
)


@given(transactions=st.lists(st.tuples(st.lists(st.tuples(_KEYS, st.integers(0, 6)), max_size=1), _OPERATIONS)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sqlite_and_memory_are_the_same_store(
    transactions: list[tuple[list[tuple[str, int]], list[Operation]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async def compare() -> None:
        path = tmp_path_factory.mktemp("store") / "cluster.sqlite"
        sqlite, memory = await open_sqlite_store(path, Time().ms), MemoryMetadataStore(Time().ms)
        for compares, operations in transactions:
            conditions = [Compare(key, revision) for key, revision in compares]
            assert await sqlite.commit(conditions, operations) == await memory.commit(conditions, operations)
            assert await sqlite.list("") == await memory.list("")
        await sqlite.close()

    trio.run(compare)


class TestSqlite:
    async def test_what_was_answered_is_there_after_reopening(self, tmp_path: Path, time: Time) -> None:
        first = await _open("sqlite", tmp_path, time)
        revision = await first.commit([], [Put("/a", b"1")])
        await first.close()
        second = await _open("sqlite", tmp_path, time)
        listing = await second.list("/")
        await second.close()
        assert listing.revision == revision
        assert [entry.value for entry in listing.entries] == [b"1"]

    async def test_another_format_version_is_refused_in_a_sentence(self, tmp_path: Path, time: Time) -> None:
        import sqlite3

        connection = sqlite3.connect(tmp_path / "cluster.sqlite")
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        with pytest.raises(StoreUnavailableError, match="format version 99"):
            await _open("sqlite", tmp_path, time)

    async def test_a_file_that_is_no_database_is_refused(self, tmp_path: Path, time: Time) -> None:
        (tmp_path / "cluster.sqlite").write_bytes(b"not a database, and long enough to be looked at" * 10)
        with pytest.raises(StoreUnavailableError, match="cannot be opened"):
            await _open("sqlite", tmp_path, time)
