"""Damage at rest: never a wrong record served, never silently fewer than were acknowledged."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from ottla.storage.disk import RealDisk
from ottla.storage.errors import CorruptLogError
from ottla.storage.inspect.fsck import check_node
from ottla.storage.start.recovered_logs import RecoveredLogs

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


# `make damage` asks for 2,000.
@pytest.mark.parametrize("seed", range(int(os.environ.get("DAMAGE_BITS", "40"))))
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


async def test_damage_before_sound_blocks_is_set_aside_loudly(harness: Any, caplog: Any, monkeypatch: Any) -> None:
    """After a power cut, where what follows may be a part of what was written."""
    folder = await fill(harness, segment_bytes=1 << 30)
    monkeypatch.setattr(RealDisk, "boot_id", lambda _: "another boot")
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


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("accident", [Path.unlink, cut_in_half, empty])
@pytest.mark.parametrize("clean", [False, True])
async def test_no_file_is_lost_in_silence(
    harness: Any, accident: Callable[[Path], None], clean: bool, caplog: Any
) -> None:
    """Of each file in turn: what was acknowledged is served, or refused, or the start and fsck said that it is lost."""
    folder = await fill(harness, clean=clean)
    kept = folder.parents[2] / "kept"
    shutil.copytree(folder, kept)
    assert len(list(kept.iterdir())) > 5
    for name in sorted(path.name for path in kept.iterdir()):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        accident(folder / name)
        report = check_node(RealDisk(), str(folder.parents[1]))
        caplog.clear()
        lost = refused = 0
        for partition in range(2):
            found, missing = await survivors(harness, partition)
            whole = expected(partition)
            assert all(whole[offset] == value for offset, value in found.items()), name
            refused += missing
            lost += len(whole) - len(found) - missing
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        if lost or refused:
            assert errors, name
            assert report.is_damaged, name
        if name.endswith(".data") and name != max(path.name for path in kept.glob("*.data")):
            # Of a sealed segment all is known: nothing but what it held is refused, and again at the next start.
            assert lost == 0, name
            assert refused > 0, name
            caplog.clear()
            async with harness.manager() as manager:
                await harness.open(manager, 0)
                assert [place for place in manager.context.damage if place.path == str(folder / name)], name
            again = check_node(RealDisk(), str(folder.parents[1]))
            assert again.is_damaged, name


async def test_a_segment_without_a_trace_leaves_a_gap_that_is_not_jumped(harness: Any, caplog: Any) -> None:
    folder = await fill(harness)
    for suffix in (".data", ".index"):
        sorted(path for path in folder.iterdir() if path.suffix == suffix)[1].unlink()
    found, refused = await survivors(harness, 0)
    whole = expected(0)
    assert refused == len(whole) - len(found) > 0
    async with harness.manager() as manager:
        log = await harness.open(manager, 0)
        first = next(offset for offset in whole if offset not in found)
        # What comes before is served, the gap is not, and what comes after is again.
        assert [offset for offset, _ in await harness.read_records(log, 0)] == list(range(first))
        with pytest.raises(CorruptLogError, match="missing") as raised:
            await harness.read_records(log, first)
        assert raised.value.resumes_at == first + refused
        assert (await harness.read_records(log, raised.value.resumes_at))[0][0] == first + refused
    assert check_node(RealDisk(), str(folder.parents[1])).is_damaged


async def test_a_listed_segment_is_read_on_behind_damage(harness: Any) -> None:
    """Without a checkpoint all is read again: what was sealed was whole, whatever has become of the machine since."""
    folder = await fill(harness)
    (folder / "checkpoint").unlink()
    path = sorted(folder.glob("*.data"))[1]
    content = bytearray(path.read_bytes())
    content[content.index(b"OtBk", len(content) // 2) + 50] ^= 1
    path.write_bytes(bytes(content))
    lost = 0
    for partition in range(2):
        found, refused = await survivors(harness, partition)
        assert len(found) + refused == COUNT // 2
        lost += refused
    assert lost == 1


async def test_what_is_lost_can_be_given_up(harness: Any) -> None:
    """Retention and DeleteRecords go past a lost segment; then nothing is lost any more."""
    folder = await fill(harness)
    sorted(path for path in folder.iterdir() if path.suffix == ".data")[0].unlink()
    async with harness.manager() as manager:
        logs = [await harness.open(manager, partition) for partition in range(2)]
        assert len(manager.context.damage) == 1
        for log in logs:
            await log.advance_log_start_offset(25)
        await manager.clean()
        assert [offset for offset, _ in await harness.read_all(logs[0])] == list(range(25, 30))
        assert len(manager.context.damage) == 0
    assert not check_node(RealDisk(), str(folder.parents[1])).is_damaged


async def test_the_last_segment_is_missed(harness: Any, caplog: Any) -> None:
    """Its log ends earlier, loudly; what is written then does not mix with what was lost."""
    folder = await fill(harness)
    max(path for path in folder.iterdir() if path.suffix == ".data").unlink()
    async with harness.manager() as manager:
        log = await harness.open(manager, 0)
        assert 0 < log.log_end_offset < COUNT // 2
        assert "are lost" in caplog.text
        end = log.log_end_offset
        harness.append(log, b"after")
        await log.flush()
        assert (await harness.read_all(log))[-1] == (end, b"after")
    async with harness.manager() as manager:
        log = await harness.open(manager, 0)
        assert (await harness.read_all(log))[-1] == (end, b"after")
        assert log.log_end_offset == end + 1


async def test_a_listed_segment_that_was_cut_is_written_on(harness: Any, monkeypatch: Any) -> None:
    """Cut at the damage, as a log's state knows more than was replayed: the list speaks of more than there is then."""
    monkeypatch.setattr(RecoveredLogs, "know_of_block", lambda *_: True)
    folder = await fill(harness)
    (folder / "checkpoint").unlink()
    listed = (folder / "segments").read_bytes()
    path = sorted(folder.glob("*.data"))[1]
    content = bytearray(path.read_bytes())
    content[content.index(b"OtBk", len(content) // 2) + 50] ^= 1
    path.write_bytes(bytes(content))
    for _ in range(2):
        async with harness.manager(tail_cache_bytes=0) as manager:
            log = await harness.open(manager, 0)
            end = log.log_end_offset
            assert 0 < end < COUNT // 2
            segment = log.store.files.active
            assert not segment.is_lost
            assert segment.size_bytes == (await trio.Path(segment.data_path).stat()).st_size
            harness.append(log, b"after")
            await log.flush()
            assert (await harness.read_all(log))[-1] == (end, b"after")
    async with harness.manager(tail_cache_bytes=0) as manager:
        log = await harness.open(manager, 0)
        assert [value for _, value in await harness.read_all(log)][-2:] == [b"after", b"after"]
    # A kill before the list was replaced: what it names behind the cut was set aside.
    (folder / "segments").write_bytes(listed)
    async with harness.manager(tail_cache_bytes=0) as manager:
        log = await harness.open(manager, 0)
        assert [value for _, value in await harness.read_all(log)][-2:] == [b"after", b"after"]
        harness.append(log, b"again")
        await log.flush()
        assert (await harness.read_all(log))[-1][1] == b"again"
