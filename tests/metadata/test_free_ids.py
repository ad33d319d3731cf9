"""Nodes that are given no id."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from ottla.metadata import keys
from ottla.metadata.free_ids import find_node_id, take_free_id
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.sqlite import open_sqlite_store
from ottla.metastore.store import Delete, Put
from ottla.runtime.errors import StartupError
from ottla.settings.config import BrokerConfig
from ottla.storage.clock import SystemClock


@pytest.fixture
async def store() -> AsyncIterator[MemoryMetadataStore]:
    opened = MemoryMetadataStore(SystemClock().time_ms)
    yield opened
    await opened.close()


async def test_many_at_once_get_one_each_and_none_that_a_broker_has(store: MemoryMetadataStore) -> None:
    await store.commit([], [Put(keys.broker(2), b""), Put(keys.alive(4), b"")])
    found: list[int] = []

    async def take() -> None:
        found.append(await take_free_id(store))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(take)
    assert sorted(found) == [1, 3, 5, 6, 7]


async def test_an_id_is_given_once(store: MemoryMetadataStore) -> None:
    assert await take_free_id(store) == 1
    await store.commit([], [Put(keys.broker(1), b"")])
    await store.commit([], [Delete(keys.broker(1))])  # it was unregistered
    assert await take_free_id(store) == 2


def config(folder: Path) -> BrokerConfig:
    return BrokerConfig({"log.dirs": str(folder), "node.id": "-1"})


async def test_the_folder_knows_its_node(tmp_path: Path) -> None:
    clock = SystemClock()
    assert await find_node_id(config(tmp_path / "data"), clock) == 1
    assert not await trio.Path(tmp_path / "data").exists()
    await trio.Path(tmp_path / "node-7").mkdir()
    assert await find_node_id(config(tmp_path), clock) == 7
    await trio.Path(tmp_path / "node-8").mkdir()
    with pytest.raises(StartupError, match=r"holds data of nodes 7, 8: say with node\.id"):
        await find_node_id(config(tmp_path), clock)


async def test_metadata_without_a_node_beside_it_is_asked(tmp_path: Path) -> None:
    store = await open_sqlite_store(tmp_path / "cluster.sqlite", SystemClock().time_ms)
    await store.commit([], [Put(keys.broker(1), b"")])
    await store.close()
    assert await find_node_id(config(tmp_path), SystemClock()) == 2
