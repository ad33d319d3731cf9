"""The file that says what was committed before a start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.replica.high_watermarks import FILE, HighWatermarks
from ottla.storage.disk.memory_disk import MemoryDisk
from tests.doubles.worker_threads import InPlace

TOPIC = UUID(int=7)


async def in_place(function: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function()


def partition(index: int, high_watermark: int, replicas: tuple[int, ...] = (1, 2), epoch: int = 0) -> Any:
    log = SimpleNamespace(high_watermark=high_watermark)
    return SimpleNamespace(topic_id=TOPIC, index=index, replicas=replicas, log=log, leader_epoch=epoch)


@pytest.fixture
def disk() -> MemoryDisk:
    made = MemoryDisk()
    made.mkdir("/node")
    return made


async def loaded(disk: MemoryDisk) -> HighWatermarks:
    found = HighWatermarks(disk, "/node", InPlace())
    await found.load()
    return found


async def test_what_was_written_last_is_known_after_a_start(disk: MemoryDisk, autojump_clock: object) -> None:
    partitions = [partition(0, 5), partition(1, 9), partition(2, 3, replicas=(1,))]
    with trio.move_on_after(2.5):
        await (await loaded(disk)).run(lambda: partitions, tuple, 1000)
    again = await loaded(disk)
    assert [again.of(TOPIC, index) for index in range(4)] == [5, 9, 0, 0]  # one replica alone knows by itself
    partitions[0].log.high_watermark = 6
    with trio.move_on_after(0.5):  # an orderly stop writes it once more
        await again.run(lambda: partitions, tuple, 1000)
    assert (await loaded(disk)).of(TOPIC, 0) == 6


async def test_the_leader_epoch_is_known_after_a_start(disk: MemoryDisk, autojump_clock: object) -> None:
    partitions = [partition(0, 5, epoch=3)]
    with trio.move_on_after(1.5):
        await (await loaded(disk)).run(lambda: partitions, tuple, 1000)
    again = await loaded(disk)
    assert [again.epoch_of(TOPIC, index) for index in range(2)] == [3, -1]
    partitions[0].leader_epoch = 4  # nothing else has changed
    with trio.move_on_after(0.5):
        await again.run(lambda: partitions, tuple, 1000)
    assert (await loaded(disk)).epoch_of(TOPIC, 0) == 4


async def test_a_file_without_epochs_can_be_read(disk: MemoryDisk) -> None:
    disk.write_file_atomic(f"/node/{FILE}", f'{{"{TOPIC}-0": 5}}'.encode())
    found = await loaded(disk)
    assert (found.of(TOPIC, 0), found.epoch_of(TOPIC, 0)) == (5, -1)


async def test_the_file_of_many_partitions_is_encoded_in_pieces(disk: MemoryDisk, autojump_clock: object) -> None:
    """The event loop stands still while one is encoded, in whichever thread."""
    partitions = [partition(index, index + 1) for index in range(1201)]
    pieces: list[int] = []
    write = disk.write_file_atomic

    def noted(path: str, *content: bytes) -> None:
        pieces.extend(map(len, content))
        write(path, *content)

    disk.write_file_atomic = noted  # type: ignore[method-assign]
    with trio.move_on_after(1.5):
        await (await loaded(disk)).run(lambda: partitions, tuple, 1000)
    again = await loaded(disk)
    assert [again.of(TOPIC, index) for index in range(1201)] == list(range(1, 1202))
    assert len(pieces) > 2
    assert max(pieces) < sum(pieces) / 2


class Counted(UUID):
    """Says how often it was written as text, which takes longer than all else that is done for a partition."""

    __slots__ = ()
    texts = 0

    def __str__(self) -> str:
        Counted.texts += 1
        return super().__str__()


async def test_partitions_of_one_replica_are_passed_over(disk: MemoryDisk, autojump_clock: object) -> None:
    alone = partition(0, 5, replicas=(1,))
    alone.topic_id = Counted(int=8)
    with trio.move_on_after(3.5):
        await (await loaded(disk)).run(lambda: [alone, partition(1, 9)], tuple, 1000)
    assert Counted.texts == 0
    assert (await loaded(disk)).of(TOPIC, 1) == 9


async def test_what_could_not_be_opened_is_not_forgotten(disk: MemoryDisk, autojump_clock: object) -> None:
    """A log for which there was no room, or no descriptor, is opened later, or by the next start."""
    partitions = [partition(0, 5), partition(1, 9), partition(2, 7)]
    with trio.move_on_after(1.5):
        await (await loaded(disk)).run(lambda: partitions, tuple, 1000)
    watermarks = await loaded(disk)
    partitions[1:] = []
    with trio.move_on_after(1.5):
        await watermarks.run(lambda: partitions, lambda: [(TOPIC, 1), (TOPIC, 3)], 1000)
    assert [watermarks.of(TOPIC, index) for index in range(4)] == [5, 9, 0, 0]  # partition 2 is gone
    assert (await loaded(disk)).of(TOPIC, 1) == 9


async def test_what_is_forgotten_is_not_known_by_the_next_start_either(
    disk: MemoryDisk, autojump_clock: object
) -> None:
    with trio.move_on_after(1.5):
        await (await loaded(disk)).run(lambda: [partition(0, 5)], tuple, 1000)
    watermarks = await loaded(disk)
    for _ in range(2):
        await watermarks.forget()
        assert watermarks.of(TOPIC, 0) == 0
    assert (await loaded(disk)).of(TOPIC, 0) == 0


async def test_nothing_is_written_while_nothing_changes(disk: MemoryDisk, autojump_clock: object) -> None:
    partitions = [partition(0, 5)]
    watermarks = await loaded(disk)
    with trio.move_on_after(1.5):
        await watermarks.run(lambda: partitions, tuple, 1000)
    disk.unlink(f"/node/{FILE}")
    with trio.move_on_after(10):
        await watermarks.run(lambda: partitions, tuple, 1000)
    assert not disk.exists(f"/node/{FILE}")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": "b"}', b'{"a": -1}', b'{"a": [1]}', b"\xff"])
async def test_a_damaged_file_is_as_good_as_none(disk: MemoryDisk, content: bytes) -> None:
    disk.write_file_atomic(f"/node/{FILE}", content)
    assert (await loaded(disk)).of(TOPIC, 0) == 0
