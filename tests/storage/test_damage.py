"""Damage at rest: never a wrong record served, never silently fewer than were acknowledged."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.storage.errors import CorruptLogError

COUNT = 60


async def fill(harness: Any, *, clean: bool = False, segment_bytes: int = 3000) -> Path:
    async with harness.manager(segment_bytes=segment_bytes) as manager:
        logs = [await harness.open(manager, partition) for partition in range(2)]
        for number in range(COUNT):
            harness.append(logs[number % 2], b"%d:" % number + b"x" * 100)
            await logs[0].flush()
        await manager.maintenance.wait_idle()
        if clean:
            await manager.clean()
        return Path(logs[0].store.files.directory)


def expected(partition: int) -> dict[int, bytes]:
    return {n // 2: b"%d:" % n + b"x" * 100 for n in range(COUNT) if n % 2 == partition}


async def survivors(harness: Any, partition: int) -> tuple[dict[int, bytes], int]:
    """What can be read of a partition, one offset after the other, and how many reads were refused."""
    found: dict[int, bytes] = {}
    refused = 0
    async with harness.manager() as manager:
        log = await harness.open(manager, partition)
        for offset in range(log.log_start_offset, log.log_end_offset):
            try:
                records = await harness.read_records(log, offset, max_bytes=1)
            except CorruptLogError:
                refused += 1
                continue
            found.update(records)
    return found, refused


@pytest.mark.parametrize("seed", range(40))
async def test_a_flipped_bit_is_never_served(harness: Any, seed: int, caplog: Any) -> None:
    rng = Random(seed)
    folder = await fill(harness, clean=bool(seed % 2), segment_bytes=rng.choice((1000, 3000, 100_000)))
    path = rng.choice(sorted(folder.iterdir()))
    content = bytearray(path.read_bytes())
    bit = rng.randrange(len(content) * 8)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(content))
    caplog.set_level(logging.WARNING)
    lost = 0
    for partition in range(2):
        found, refused = await survivors(harness, partition)
        whole = expected(partition)
        assert all(whole[offset] == value for offset, value in found.items())
        lost += len(whole) - len(found) - refused
    # What is missing without an error to the reader was said at the start.
    assert lost == 0 or any(record.levelno >= logging.WARNING for record in caplog.records), path.name


@pytest.mark.parametrize("what", ["missing", "empty", "damaged", "of another segment"])
async def test_an_index_is_rebuilt(harness: Any, what: str) -> None:
    folder = await fill(harness)
    first, second = sorted(path for path in folder.iterdir() if path.suffix == ".index")[:2]
    if what == "missing":
        first.unlink()
    elif what == "empty":
        first.write_bytes(b"")
    elif what == "damaged":
        content = bytearray(first.read_bytes())
        content[100] ^= 0xFF
        first.write_bytes(bytes(content))
    else:
        first.write_bytes(second.read_bytes())
    for partition in range(2):
        found, refused = await survivors(harness, partition)
        assert found == expected(partition)
        assert refused == 0


async def test_a_lost_checkpoint_costs_time_only(harness: Any) -> None:
    folder = await fill(harness, clean=True)
    (folder / "checkpoint").unlink()
    for partition in range(2):
        found, refused = await survivors(harness, partition)
        assert found == expected(partition)
        assert refused == 0


async def test_damage_before_sound_blocks_is_set_aside_loudly(harness: Any, caplog: Any) -> None:
    folder = await fill(harness, segment_bytes=1 << 30)
    (folder / "checkpoint").unlink()
    path = folder / f"{0:020d}.data"
    content = bytearray(path.read_bytes())
    middle = content.index(b"OtBk", len(content) // 2)
    content[middle + 50] ^= 1
    path.write_bytes(bytes(content))
    caplog.set_level(logging.ERROR)
    found, _ = await survivors(harness, 0)
    assert 0 < len(found) < COUNT // 2
    assert "set aside" in caplog.text
    aside = [entry for entry in folder.iterdir() if ".cut-" in entry.name]
    assert [entry.read_bytes() for entry in aside] == [bytes(content[middle:])]
