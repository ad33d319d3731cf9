"""A damaged batch hides nothing but itself: what comes before it is served, and what comes after it can be read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.kproto.records import iter_batches
from ottla.storage.errors import CorruptLogError
from ottla.storage.log.partition_log import PartitionLog

COUNT = 600


async def fill(harness: Any) -> Path:
    """One partition's batches in one block, in a segment that is sealed."""
    async with harness.manager() as manager:
        log = await harness.open(manager)
        for number in range(COUNT):
            harness.append(log, b"%d" % number + b"x" * 50)
        await log.flush()
        return Path(log.store.files.segments[0].data_path)


def damage(path: Path, offset: int, byte: int) -> int:
    """Flip a bit of one byte of the batch of an offset; returns where the batch stands in the file."""
    content = bytearray(path.read_bytes())
    start = content.index(b"OtBk") + 40 + 64
    position = next(start + pos for pos, header in iter_batches(content[start:]) if header.base_offset == offset)
    content[position + byte] ^= 0x10
    path.write_bytes(bytes(content))
    return position


async def read_to_damage(harness: Any, log: PartitionLog, offset: int) -> list[int]:
    """The offsets that can be read from one on, until there are no more or damage is met."""
    found: list[int] = []
    while offset < log.flushed_end_offset:
        try:
            part = await harness.read_records(log, offset)
        except CorruptLogError:
            break
        found += [each for each, _ in part]
        offset = found[-1] + 1
    return found


# The payload, the checksum, the length, the base offset, the offset delta, the leader epoch.
@pytest.mark.parametrize("byte", [70, 18, 9, 10, 6, 26, 13, 15])
@pytest.mark.parametrize("is_sealed", [False, True])
async def test_what_is_sound_around_it_is_served(harness: Any, byte: int, is_sealed: bool, caplog: Any) -> None:
    path = await fill(harness)
    position = damage(path, 549, byte)
    caplog.set_level(logging.ERROR)
    async with harness.manager(segment_bytes=1000 if is_sealed else 1 << 30) as manager:
        log = await harness.open(manager, segment_bytes=1000 if is_sealed else 1 << 30)
        if is_sealed:
            harness.append(log, b"rolls")
            await log.flush()
            await harness.settle()
            assert log.store.files.has_sealed
        assert await read_to_damage(harness, log, 0) == list(range(549))
        for _ in range(3):
            with pytest.raises(CorruptLogError) as raised:
                await harness.read_records(log, 549)
            assert (raised.value.path, raised.value.position) == (str(path), position)
            assert raised.value.resumes_at == 550
        assert await read_to_damage(harness, log, 550) == list(range(550, log.log_end_offset))
        lines = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(lines) == 1
        assert lines[0].path == str(path)
        assert lines[0].position == position
        assert [(place.path, place.position) for place in manager.context.damage] == [(str(path), position)]


async def damaged_in_the_middle(harness: Any) -> None:
    """Ten batches of producer 7, of which that at offset 5 is damaged."""
    async with harness.manager() as manager:
        log = await harness.open(manager)
        for number in range(10):
            harness.append(log, b"x" * 50, producer_id=7, producer_epoch=0, base_sequence=number)
        await log.flush()
        path = Path(log.store.files.segments[0].data_path)
    damage(path, 5, 70)


async def test_producers_are_read_past_it(harness: Any) -> None:
    await damaged_in_the_middle(harness)
    async with harness.manager() as manager:
        log = await harness.open(manager)
        await log.rebuild_producers()
        (producer,) = log.active_producers()
        assert producer.last_sequence == 9


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_a_log_that_is_cut_where_it_is_damaged_knows_its_producers(harness: Any, is_sealed: bool) -> None:
    """They are read before it is cut, and no further."""
    await damaged_in_the_middle(harness)
    async with harness.manager(segment_bytes=1) as manager:
        log = await harness.open(manager)
        if is_sealed:
            harness.append(log, b"rolls")
            await log.flush()
            await harness.settle()
        assert log.store.files.has_sealed is is_sealed
        await log.truncate_to(5)
        assert log.log_end_offset == 5
        (producer,) = log.active_producers()
        assert producer.last_sequence == 4
        assert len(manager.context.damage) == 0


async def test_what_was_removed_is_damaged_no_more(harness: Any) -> None:
    path = await fill(harness)
    damage(path, 3, 70)
    async with harness.manager() as manager:
        log = await harness.open(manager)
        assert await read_to_damage(harness, log, 0) == [0, 1, 2]
        assert len(manager.context.damage) == 1
        await manager.delete_logs(harness.topic_id, [0])
        assert len(manager.context.damage) == 0
