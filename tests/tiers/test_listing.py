"""Clusters, topics and manifests are found by listing, with a request for each."""

from __future__ import annotations

from uuid import UUID

import pytest
import trio.testing

from ottla.tiers.errors import ObjectStoreUnavailableError
from ottla.tiers.listing import find_clusters, find_topics, list_manifests
from ottla.tiers.names import TopicNames, UploadId
from ottla.tiers.parallel import in_parallel
from ottla.tiers.stores.memory_store import MemoryObjectStore
from tests.tiers.faults import FaultyObjectStore

ONE, TWO = UUID(int=1), UUID(int=2)
#: In the order of their folders' names.
TOPICS = [
    TopicNames("a", "orders", ONE),
    TopicNames("a", "orders-old", ONE),
    TopicNames("a", "orders.v2", ONE),
    TopicNames("a", "orders.v2", TWO),
    TopicNames("a.b", "x" * 249, ONE),
]


async def filled() -> FaultyObjectStore:
    store = FaultyObjectStore(MemoryObjectStore(lambda: 1))
    for names in TOPICS:
        for number in range(1200):
            await store.store.put(names.part(UploadId(0, UUID(int=7)), number), b"x")
        for partition in (0, 3):
            await store.store.put(names.manifest(partition), b"m")
    for name in ("a/probes/1", "a/deleted/00", "b/probes/1", "a/topics/no-topic/x", "a/topics/file", "file"):
        await store.store.put(name, b"x")
    return store


async def test_everything_is_found_with_a_request_for_each(autojump_clock: trio.testing.MockClock) -> None:
    store = await filled()
    assert await find_clusters(store) == ["a", "a.b"]
    store.requests.clear()
    found = [names async for names in find_topics(store, "a")]
    assert [names.folder for names in found] == sorted(names.folder for names in TOPICS[:4])
    assert {(names.topic, names.topic_id) for names in found} == {(it.topic, it.topic_id) for it in TOPICS[:4]}
    assert len(store.requests) <= len(found) + 3
    (long,) = [names async for names in find_topics(store, "a.b")]
    # The folder does not have the whole name, and is the same for it.
    assert (long.topic, long.folder) == ("x" * 200, TOPICS[4].folder)
    assert [names async for names in find_topics(store, "b")] == []


async def test_topics_of_one_name_are_found_without_the_others(autojump_clock: trio.testing.MockClock) -> None:
    store = await filled()
    for name, expected in (
        ("orders", TOPICS[:1]),
        ("orders.v2", TOPICS[2:4]),
        ("orders-old", TOPICS[1:2]),
        ("order", []),
        ("z", []),
        ("x" * 249, []),
    ):
        store.requests.clear()
        found = [names.folder async for names in find_topics(store, "a", name)]
        assert sorted(found) == sorted(names.folder for names in expected)
        # Of "orders" the folders of "orders.v2" are looked at, too: their names begin in the same way.
        assert len(store.requests) <= 4
    (long,) = [names async for names in find_topics(store, "a.b", "x" * 249)]
    assert long.folder == TOPICS[4].folder


async def test_manifests_are_told_from_what_is_none(autojump_clock: trio.testing.MockClock) -> None:
    store = await filled()
    await store.put(f"{TOPICS[0].manifests}3", b"x")
    assert await list_manifests(store, TOPICS[0]) == ([0, 3], [f"{TOPICS[0].manifests}3"])


def test_only_a_topics_folder_has_its_names() -> None:
    folder = TOPICS[0].folder.split("/")[2]
    assert TopicNames.of_folder("a", folder) is not None
    # The last character has bits that belong to nothing.
    for other in ("orders", folder[:-1], folder + "A", folder[:-1] + "R", "é" * 22, "." + "!" * 22):
        assert TopicNames.of_folder("a", other) is None


async def test_the_first_failure_of_many_ends_the_others(autojump_clock: trio.testing.MockClock) -> None:
    begun: list[int] = []

    async def work(number: int) -> int:
        begun.append(number)
        await trio.sleep(100 - number)
        if number == 9:
            raise ObjectStoreUnavailableError("503")
        return number * number

    assert await in_parallel(work, range(9)) == [number * number for number in range(9)]
    begun.clear()
    with pytest.raises(ObjectStoreUnavailableError):
        await in_parallel(work, range(1000))
    assert len(begun) < 30
