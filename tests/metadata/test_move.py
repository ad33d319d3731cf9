"""Moving the metadata from one store to another, and being killed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from ottla.metadata import keys
from ottla.metadata.controller import Controller
from ottla.metadata.errors import MoveRefusedError
from ottla.metadata.image import BrokerImage
from ottla.metadata.move import Place, move, refuse_moved
from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Compare, Delete, Operation, Put
from ottla.settings.config import BrokerConfig


class _Killed(Exception):  # noqa: N818 - it is no error
    pass


class _Store(MemoryMetadataStore):
    """A store that ends the program before one of its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.commits_left: int | None = None

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        if self.commits_left is not None:
            if self.commits_left == 0:
                raise _Killed
            self.commits_left -= 1
        return await super().commit(compares, operations)


@pytest.fixture
async def source() -> Place:
    store = _Store()
    cluster = Put(keys.CLUSTER_ID, keys.encode("a cluster"))
    topics = [Put(keys.topic(f"t{number}"), b"x" * 1000) for number in range(2_500)]
    await store.commit([], [cluster, *topics])
    return Place(store, "/data")


@pytest.fixture
def target() -> Place:
    return Place(_Store(), "etcd://etcd/ottla")


async def _values(place: Place) -> dict[str, bytes]:
    return {entry.key: entry.value for entry in (await place.store.list("")).entries}


async def test_all_is_there_then_and_the_old_place_says_where(source: Place, target: Place) -> None:
    before = await _values(source)
    assert await move(source, target) == len(before)
    assert await _values(target) == before
    await refuse_moved(target.store)
    with pytest.raises(StoreUnavailableError, match="has moved to etcd://etcd/ottla: start with that"):
        await refuse_moved(source.store)


async def test_there_and_back_with_what_has_changed_meanwhile(source: Place, target: Place) -> None:
    await move(source, target)
    await target.store.commit([], [Put(keys.topic("new"), b"1"), Delete(keys.topic("t0"))])
    after = await _values(target)
    await move(target, source)
    assert await _values(source) == after
    await refuse_moved(source.store)
    with pytest.raises(StoreUnavailableError, match="has moved to /data"):
        await refuse_moved(target.store)


async def test_killed_at_any_step_and_moved_again(source: Place) -> None:
    before = await _values(source)
    assert isinstance(source.store, _Store)
    for step in range(40):
        source_store, target_store = _Store(), _Store()
        await source_store.commit([], [Put(key, value) for key, value in before.items()])
        here, there = Place(source_store, "/data"), Place(target_store, "etcd://etcd/ottla")
        target_store.commits_left = step
        try:
            await move(here, there)
        except _Killed:
            # Neither is a home now, and both say so, but for an old one that nothing has come to yet.
            with pytest.raises(StoreUnavailableError):
                await refuse_moved(source_store)
            if step:
                with pytest.raises(StoreUnavailableError, match="on its way here from /data"):
                    await refuse_moved(target_store)
            with pytest.raises(MoveRefusedError, match="has moved from /data to etcd://etcd/ottla already"):
                await move(here, Place(_Store(), "etcd://elsewhere"))
            target_store.commits_left = None
            await move(here, there)
        else:
            break
        finally:
            target_store.commits_left = None
        assert await _values(there) == before
    assert 5 < step < 40


async def test_a_node_that_runs_stops_the_move(source: Place, target: Place) -> None:
    lease = await source.store.grant_lease(60_000)
    await source.store.commit([], [Put(keys.alive(7), b"{}", lease)])
    with pytest.raises(MoveRefusedError, match="Node 7 of /data is running"):
        await move(source, target)
    assert await _values(target) == {}
    await refuse_moved(source.store)
    await source.store.revoke_lease(lease)
    await move(source, target)


async def test_a_node_that_begins_at_the_same_time(
    source: Place, target: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had its session just before the source was marked."""
    commit = _Store.commit

    async def begin_and_commit(
        self: _Store, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        monkeypatch.setattr(_Store, "commit", commit)
        await self.commit([], [Put(keys.alive(7), b"{}", await self.grant_lease(60_000))])
        return await self.commit(compares, operations)

    monkeypatch.setattr(_Store, "commit", begin_and_commit)
    with pytest.raises(MoveRefusedError, match="Node 7 of /data is running"):
        await move(source, target)
    await refuse_moved(source.store)
    assert await _values(target) == {}


async def test_a_node_that_is_late_cannot_register(target: Place, nursery: trio.Nursery) -> None:
    source = Place(_Store(), "/data")
    controller = Controller(source.store, BrokerConfig(), node_id=1)
    await nursery.start(controller.run)
    await move(source, target)
    with pytest.raises(StoreUnavailableError, match="has moved"):
        await controller.register_broker(BrokerImage(1, ()), await source.store.grant_lease(60_000))
    nursery.cancel_scope.cancel()


async def test_what_is_refused(source: Place, target: Place) -> None:
    with pytest.raises(MoveRefusedError, match="holds no cluster"):
        await move(target, source)
    with pytest.raises(MoveRefusedError, match="is in /data"):
        await move(source, source)
    other = Place(_Store(), "etcd://etcd/other")
    await other.store.commit([], [Put(keys.CLUSTER_ID, keys.encode("another"))])
    with pytest.raises(MoveRefusedError, match="etcd://etcd/other holds a cluster"):
        await move(source, other)
    await refuse_moved(source.store)
    await move(source, target)
    with pytest.raises(MoveRefusedError, match="holds a cluster"):
        await move(source, target)
