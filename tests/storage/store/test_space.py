"""What decides whether a disk is full, and what makes room, take turns."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.storage.disk import RealDisk
from ottla.storage.store.space import Space
from tests.doubles.worker_threads import RealThreads
from tests.storage.held_disk import until

RESERVE_BYTES = 2_000_000


class SmallDisk(RealDisk):
    """One file's bytes count as free when it is gone, and a question for room can be held before it is answered."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.other_free_bytes = 10_000_000
        self.asked = 0
        self.may_answer = threading.Event()

    def free_bytes(self, path: str) -> int:
        self.asked += 1
        assert self.may_answer.wait(60), "nobody let the question be answered"
        return self.other_free_bytes + RESERVE_BYTES - (self._path.stat().st_size if self._path.exists() else 0)


async def test_a_reserve_that_is_given_up_meanwhile_is_not_taken_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reserve was there when it was asked for, so its bytes were not missing; then they counted as free."""
    monkeypatch.setattr("ottla.storage.store.space._START_SECONDS", 0)
    path = tmp_path / "reserve"
    path.write_bytes(bytes(RESERVE_BYTES))
    disk = SmallDisk(path)
    disk.may_answer.set()
    space = Space(disk, str(path), RESERVE_BYTES, RealThreads())
    is_given_up: list[bool] = []

    async def give_up() -> None:
        is_given_up.append(await space.make_room())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(space.run)
        await until(lambda: disk.asked == 2)  # that is all of its start
        await wait_all_tasks_blocked(0.05)
        disk.other_free_bytes = 45_000
        disk.may_answer.clear()
        space.filled("a write found no room", 60_000)
        await until(lambda: disk.asked == 3)
        nursery.start_soon(give_up)
        await wait_all_tasks_blocked(0.05)
        disk.may_answer.set()
        await until(lambda: bool(is_given_up))
        await wait_all_tasks_blocked(0.05)
        assert is_given_up == [True]
        assert (space.is_full, path.exists()) == (True, False)
        nursery.cancel_scope.cancel()


async def test_the_reserve_is_kept_if_there_is_room_by_then(tmp_path: Path) -> None:
    """A block waits because the disk is full; while it waits for its turn to make room, the disk has room again."""
    path = tmp_path / "reserve"
    path.write_bytes(bytes(RESERVE_BYTES))
    disk = SmallDisk(path)
    space = Space(disk, str(path), RESERVE_BYTES, RealThreads())
    space.filled("a write found no room", 60_000)
    is_given_up: list[bool] = []

    async def give_up() -> None:
        is_given_up.append(await space.make_room(if_full=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(space.run)
        await until(lambda: disk.asked == 1)  # there is a reserve
        disk.may_answer.set()
        await until(lambda: not space.is_full or disk.asked == 2)
        nursery.start_soon(give_up)
        await until(lambda: bool(is_given_up))
        assert is_given_up == [False]
        assert (space.is_full, path.exists()) == (False, True)
        nursery.cancel_scope.cancel()
