"""The loader while the store comes and goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from ottla.metadata.image import MetadataDelta
from ottla.metadata.keys import feature
from ottla.metadata.loader import MetadataLoader
from ottla.metastore.errors import MetadataDamagedError, StoreUnavailableError, WatchLaggedError
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Change, Listing, Put, Watch

pytestmark = pytest.mark.frozen_clock


class _UnreliableStore(MemoryMetadataStore):
    """A store that can be cut off: then lists and watches fail, and commits happen all the same, by others."""

    def __init__(self) -> None:
        super().__init__()
        self._cut = trio.Event()
        self.lost: Exception | None = None
        self.watches = 0

    def cut(self, error: Exception) -> None:
        self.lost = error
        self._cut.set()

    def restore(self) -> None:
        self.lost = None
        self._cut = trio.Event()

    async def list(self, prefix: str) -> Listing:
        if isinstance(self.lost, StoreUnavailableError):
            raise self.lost
        return await super().list(prefix)

    @asynccontextmanager
    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Watch]:
        self.watches += 1
        if isinstance(self.lost, StoreUnavailableError):
            raise self.lost
        async with super().watch(prefix, after_revision) as watch:
            yield _UnreliableWatch(self, watch)

    async def until_cut(self) -> None:
        await self._cut.wait()


class _UnreliableWatch:
    def __init__(self, store: _UnreliableStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    async def receive(self) -> Change:
        changes: list[Change] = []

        async def receive(scope: trio.CancelScope) -> None:
            changes.append(await self._watch.receive())
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive, nursery.cancel_scope)
            await self._store.until_cut()
            nursery.cancel_scope.cancel()
        if changes:
            return changes[0]
        if self._store.lost is None:
            return await self.receive()
        raise self._store.lost


@pytest.fixture
def store() -> _UnreliableStore:
    return _UnreliableStore()


async def _put(store: _UnreliableStore, level: int) -> int:
    revision = await store.commit([], [Put(feature("f"), b"%d" % level)])
    assert revision is not None
    return revision


async def test_a_lost_store_is_followed_again_without_a_gap(
    store: _UnreliableStore, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.autojump_threshold = 0
    loader = MetadataLoader(store)
    seen: list[int] = []

    async def see(delta: MetadataDelta) -> None:
        seen.append(delta.after.features.get("f", 0))

    loader.subscribe(see)
    await nursery.start(loader.run)
    await loader.wait_for(await _put(store, 1))
    store.cut(StoreUnavailableError("gone"))
    await trio.testing.wait_all_tasks_blocked()
    await _put(store, 2)
    last = await _put(store, 3)
    await trio.sleep(60)
    assert loader.image.features["f"] == 1
    # Not more often than every second or so.
    assert store.watches < 80
    store.restore()
    await trio.sleep(3)
    await loader.wait_for(last)
    assert seen == [0, 1, 2, 3]


async def test_who_waits_for_a_revision_is_told_that_the_store_is_lost(
    store: _UnreliableStore, nursery: trio.Nursery
) -> None:
    loader = MetadataLoader(store)
    await nursery.start(loader.run)
    await trio.testing.wait_all_tasks_blocked()
    failures: list[Exception] = []

    async def wait() -> None:
        try:
            await loader.wait_for(99)
        except StoreUnavailableError as error:
            failures.append(error)

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    store.cut(StoreUnavailableError("gone"))
    await trio.testing.wait_all_tasks_blocked()
    assert len(failures) == 1


async def test_a_watch_that_lags_is_followed_by_a_listing(
    store: _UnreliableStore, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.autojump_threshold = 0
    loader = MetadataLoader(store)
    await nursery.start(loader.run)
    await trio.testing.wait_all_tasks_blocked()
    store.cut(WatchLaggedError("too late"))
    await trio.lowlevel.checkpoint()
    last = await _put(store, 2)
    store.restore()
    await loader.wait_for(last)
    assert loader.image.features["f"] == 2


async def test_a_start_without_the_store_fails(store: _UnreliableStore, nursery: trio.Nursery) -> None:
    store.cut(StoreUnavailableError("gone"))
    loader = MetadataLoader(store)
    with pytest.raises(StoreUnavailableError):
        await loader.run()


async def test_what_a_subscriber_raises_ends_the_loader(store: _UnreliableStore) -> None:
    """Also what looks like the store's own failure: the change has not been applied."""
    loader = MetadataLoader(store)

    async def refuse(delta: MetadataDelta) -> None:
        if delta.after.features:
            raise StoreUnavailableError("of my own")

    loader.subscribe(refuse)
    with pytest.RaisesGroup(pytest.RaisesExc(StoreUnavailableError, match="of my own")):
        async with trio.open_nursery() as nursery:
            await nursery.start(loader.run)
            await _put(store, 1)


async def test_damage_is_told_of_once(
    store: _UnreliableStore,
    nursery: trio.Nursery,
    mock_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mock_clock.autojump_threshold = 0
    await nursery.start(MetadataLoader(store).run)
    await trio.testing.wait_all_tasks_blocked()
    store.cut(MetadataDamagedError("a row fails its checksum"))
    await trio.sleep(30)
    (line,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert "a row fails its checksum" in line.getMessage()
