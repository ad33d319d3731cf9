"""An object store that is not the one from before, and what is believed of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.storage.disk.memory_disk import MemoryDisk
from ottla.tiers.errors import ObjectMissingError, ObjectStoreUnavailableError
from ottla.tiers.marked_store import MARK, MarkedObjectStore
from ottla.tiers.object_store import ABSENT, ObjectStore, StoredObject
from ottla.tiers.stores.memory_store import MemoryObjectStore

NOTE = "/node/remote-store-id"


def memory_store() -> MemoryObjectStore:
    return MemoryObjectStore(lambda: 0)


class Node:
    """A disk, which may see one object store after another."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.mkdir("/node")

    def sees(self, store: ObjectStore, new_id: str = "first") -> MarkedObjectStore:
        return MarkedObjectStore(store, self.disk, NOTE, new_id=lambda: new_id)

    @property
    def note(self) -> bytes:
        return self.disk.read_file(NOTE)


async def test_the_first_store_is_believed_and_gets_a_mark() -> None:
    node, store = Node(), memory_store()
    for _ in range(2):
        with pytest.raises(ObjectMissingError):
            await node.sees(store).get("a")
    assert (await store.get(MARK)).content == node.note == b"first"


async def test_several_nodes_share_one_mark() -> None:
    store = memory_store()
    first, second = Node(), Node()
    for node, new_id in ((first, "first"), (second, "second")):
        with pytest.raises(ObjectMissingError):
            await node.sees(store, new_id).get("a")
    assert first.note == second.note == b"first"


ABSENCES: list[Callable[[ObjectStore], Awaitable[Any]]] = [
    lambda store: store.get("a"),
    lambda store: store.get_if_changed("a", "1"),
    lambda store: store.find("cluster/deleted/"),
]


@pytest.mark.parametrize("ask", ABSENCES)
@pytest.mark.parametrize("mark", [None, b"another"])
async def test_what_another_store_has_not_is_not_believed(
    ask: Callable[[ObjectStore], Awaitable[Any]], mark: bytes | None
) -> None:
    node, other = Node(), memory_store()
    assert await node.sees(memory_store()).find("a/") == []
    if mark is not None:
        await other.put(MARK, mark)
    for _ in range(2):
        with pytest.raises(ObjectStoreUnavailableError, match=r"not the object store that was used before.*/node/"):
            await ask(node.sees(other))
    assert [info.name for info in await other.find("")] == ([] if mark is None else [MARK])
    node.disk.unlink(NOTE)
    assert await node.sees(other).find("cluster/deleted/") == []


class Mounted(MemoryObjectStore):
    """Empty until something was not found in it: then the folder is mounted."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.is_mounted = False

    async def get(self, name: str) -> StoredObject:
        was_mounted, self.is_mounted = self.is_mounted, True
        if not was_mounted:
            raise ObjectMissingError(name)
        return await super().get(name)


async def test_what_was_not_found_is_looked_for_again_once_the_store_is_known() -> None:
    node, store = Node(), Mounted()
    node.disk.write_file_atomic(NOTE, b"first")
    await store.put(MARK, b"first")
    await store.put("a", b"1")
    assert (await node.sees(store).get("a")).content == b"1"


async def test_what_is_there_is_answered_without_a_look_at_the_mark() -> None:
    node, other = Node(), memory_store()
    assert await node.sees(memory_store()).find("a/") == []
    seen = node.sees(other)
    await seen.put("a/b", b"1")
    assert (await seen.get("a/b")).content == b"1"
    assert [info.name for info in await seen.find("a/")] == ["a/b"]
    assert await seen.find("a/", "a/b") == []


class LosesAnswers(MemoryObjectStore):
    """The first conditional write is done, and its answer lost."""

    has_lost = False

    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        written = await super().put_if(name, content, version)
        if not self.has_lost:
            self.has_lost = True
            raise ObjectStoreUnavailableError("no answer")
        return written


async def test_a_mark_whose_answer_was_lost_is_found_later() -> None:
    node, store = Node(), LosesAnswers(lambda: 0)
    with pytest.raises(ObjectStoreUnavailableError):
        await node.sees(store).find("a/")
    assert not node.disk.exists(NOTE)
    with pytest.raises(ObjectMissingError):
        await node.sees(store, "second").get("a")
    assert node.note == b"first"


class QuickOther(MemoryObjectStore):
    """Somebody else makes the mark between the look and the write."""

    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        if version == ABSENT:
            await self.put(name, b"theirs")
        return await super().put_if(name, content, version)


async def test_of_two_marks_made_at_a_time_one_counts() -> None:
    node, store = Node(), QuickOther(lambda: 0)
    assert await node.sees(store).find("a/") == []
    assert node.note == b"theirs"
    assert (await store.get(MARK)).content == b"theirs"


async def test_a_disk_that_is_full_makes_the_store_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    node, store = Node(), memory_store()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(node.disk, "write_file_atomic", full)
        with pytest.raises(ObjectStoreUnavailableError, match="No space left"):
            await node.sees(store).find("a/")
    assert await node.sees(store, "second").find("a/") == []
    assert node.note == b"first"
