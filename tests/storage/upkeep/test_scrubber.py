"""The scrubber: what is damaged is known though nobody reads it, and it is in nobody's way."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio
import trio.testing

from ottla.storage.config import LogConfig
from ottla.storage.disk.disk import Disk
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import CorruptLogError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.store.segment import Segment
from ottla.storage.upkeep import scrubber
from ottla.storage.upkeep.scrub_state import read_scrub_state
from ottla.storage.upkeep.scrubber import Scrubber
from ottla.storage.upkeep.segment_check import SegmentCheck
from tests.storage.conftest import turns_during
from tests.storage.held_disk import exists, until

# It never begins by itself.
SETTINGS: dict[str, Any] = {
    "segment_bytes": 3000,
    "cleaner_backoff_ms": 1 << 40,
    "scrub_bytes_per_second": 1 << 30,
    "tail_cache_bytes": 0,
}


async def fill(harness: Any, manager: Any, count: int = 60) -> PartitionLog:
    log: PartitionLog = await harness.open(manager, segment_bytes=3000)
    for number in range(count):
        harness.append(log, b"%d" % number + b"x" * 200)
        await log.flush()
    await harness.settle()
    return log


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 0x10
    path.write_bytes(bytes(content))


def sealed_bytes(log: PartitionLog) -> int:
    return sum(segment.size_bytes for segment in log.store.files.segments if segment.is_sealed)


async def test_all_of_a_sound_node_is_read(harness: Any, caplog: Any) -> None:
    async with harness.manager(**SETTINGS) as manager:
        log = await fill(harness, manager)
        await manager.scrubber.scrub()
        headers = 64 * sum(segment.is_sealed for segment in log.store.files.segments)
        assert manager.scrubber.read_bytes == sealed_bytes(log) - headers > 10_000
        assert not list(manager.context.damage)
        state = read_scrub_state(manager.context.disk, manager.node_dir.path)
        assert state.finished_ms == harness.clock.time_ms()
        assert (state.findings, state.store) == ((), "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_stores_that_have_nothing_to_read_share_turns_of_the_event_loop(
    harness: Any, counted_looks: None
) -> None:
    """Others run between them, and a turn for each of many topics would take a second."""
    async with harness.manager(**SETTINGS) as manager:
        for number in range(300):
            await manager.open_log(uuid4(), f"topic{number}", 0, LogConfig())
        assert 2 < await turns_during(manager.scrubber.scrub) < 30


async def test_stores_are_read_in_the_order_of_their_folders(
    harness: Any, monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """However many there are: where a pass stops is known by the name of the last one."""
    monkeypatch.setattr(scrubber, "_SORTED_RUN", 2)
    begun = []

    def noted(disk: Disk, segment: Segment) -> SegmentCheck:
        begun.append(segment.data_path)
        return SegmentCheck(disk, segment)

    monkeypatch.setattr(scrubber, "SegmentCheck", noted)
    async with harness.manager(SimulatedDisk(1, clock=harness.clock), **SETTINGS) as manager:
        for name in ("d", "a", "e", "c", "b"):
            log = await manager.open_log(uuid4(), name, 0, LogConfig(segment_bytes=1000))
            for _ in range(10):
                harness.append(log, b"x" * 200)
                await log.flush()
        await harness.settle()
        await manager.scrubber.scrub()
    assert begun == sorted(begun)
    assert len({str(Path(path).parent) for path in begun}) == 5


# The block's head, its directory; of a batch the base offset, the leader epoch, the checksum, the payload.
@pytest.mark.parametrize("byte", [64 + 10, 64 + 50, 64 + 104 + 7, 64 + 104 + 13, 64 + 104 + 18, 64 + 104 + 90])
async def test_a_flipped_bit_is_found_and_stays_known(harness: Any, byte: int, caplog: Any) -> None:
    async with harness.manager(**SETTINGS) as manager:
        log = await fill(harness, manager)
        path = Path(log.store.files.segments[1].data_path)
    flip(path, byte)
    async with harness.manager(**SETTINGS) as manager:
        await harness.open(manager)
        await manager.scrubber.scrub()
        (damage,) = manager.context.damage
        assert damage.path == str(path)
        assert damage.position == (64 if byte < 168 else 168)
        errors = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 1
        await manager.scrubber.scrub()
        assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    async with harness.manager(**SETTINGS) as manager:
        # So that the replicas of this store are filled again.
        assert (await harness.open(manager)).may_lack_records
        await manager.scrubber.load()
        assert [(place.path, place.position) for place in manager.context.damage] == [(damage.path, damage.position)]
    # What is whole again is damaged no more after the next pass.
    flip(path, byte)
    async with harness.manager(**SETTINGS) as manager:
        await harness.open(manager)
        await manager.scrubber.scrub()
        assert not list(manager.context.damage)
        assert read_scrub_state(manager.context.disk, manager.node_dir.path).findings == ()


async def test_it_says_what_a_reader_would_meet(harness: Any) -> None:
    """One place, logged once, whether a reader or the scrubber finds it first."""
    async with harness.manager(**SETTINGS) as manager:
        log = await fill(harness, manager)
        path = Path(log.store.files.segments[1].data_path)
        flip(path, 250)
        await manager.scrubber.scrub()
        (damage,) = manager.context.damage
        with pytest.raises(CorruptLogError) as raised:
            await harness.read_all(log)
        assert (raised.value.path, raised.value.position) == (damage.path, damage.position)
        assert len(manager.context.damage) == 1


async def test_it_goes_on_where_the_last_process_was(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with harness.manager(**SETTINGS) as manager:
        log = await fill(harness, manager)
        whole = [segment.position for segment in log.store.files.segments if segment.is_sealed]
    checked: list[int] = []
    check = Scrubber._scrub_segment

    async def note(self: Scrubber, store: Any, segment: Any) -> None:
        checked.append(segment.position)
        if len(checked) == 3:
            raise OSError(errno.EMFILE, "no descriptor")
        await check(self, store, segment)

    monkeypatch.setattr(Scrubber, "_scrub_segment", note)
    async with harness.manager(**SETTINGS) as manager:
        await harness.open(manager)
        await manager.scrubber.scrub()
        assert manager.scrubber.passes == 0
        await manager.scrubber.save()
    async with harness.manager(**SETTINGS) as manager:
        await harness.open(manager)
        await manager.scrubber.load()
        await manager.scrubber.scrub()
        assert manager.scrubber.passes == 1
    assert checked == [*whole[:2], *whole[2:3], *whole[2:]]


@pytest.mark.parametrize("what", ["delete", "rewrite", "give up"])
async def test_segments_that_change_under_it_are_no_damage(
    harness: Any, what: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The topic is deleted, its segments are written anew, or retention takes them, between two steps of a check."""
    settings = {**SETTINGS, "rewrite_mean_run_bytes": 1 << 20 if what == "rewrite" else 0}
    stepped, changed = trio.Event(), trio.Event()
    async with harness.manager(**settings) as manager:
        log = await fill(harness, manager)
        before = list(log.store.files.segments)
        scrubbed = manager.scrubber
        sleep = trio.sleep

        async def wait_for_change(seconds: float) -> None:
            stepped.set()
            await changed.wait()

        monkeypatch.setattr("ottla.storage.upkeep.scrubber.trio.sleep", wait_for_change)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scrubbed.scrub)
            await stepped.wait()
            monkeypatch.setattr("ottla.storage.upkeep.scrubber.trio.sleep", sleep)
            if what == "delete":
                await manager.delete_logs(harness.topic_id, [0])
            else:
                log.advance_high_watermark(log.flushed_end_offset)
                if what == "give up":
                    await log.advance_log_start_offset(40)
                await manager.clean()
                assert before[0] not in log.store.files.segments
            changed.set()
        assert not list(manager.context.damage)
        assert not [segment for segment in before if segment._pins]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_files_that_should_go_are_let_go_of(harness: Any) -> None:
    """A pass takes hours at the rate of a busy node, and the room may be wanted at once."""
    async with harness.manager(**{**SETTINGS, "scrub_bytes_per_second": 1}) as manager:
        log = await fill(harness, manager)
        first = log.store.files.segments[0]
        log.advance_high_watermark(log.flushed_end_offset)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.scrubber.scrub)
            await until(lambda: manager.scrubber.read_bytes > 0)
            assert first._pins
            await log.advance_log_start_offset(40)
            await manager.clean()
            assert first not in log.store.files.segments
            await until(lambda: not exists(first.data_path))
            nursery.cancel_scope.cancel()


async def test_a_file_that_cannot_be_read_is_damage(harness: Any) -> None:
    disk = SimulatedDisk(1)
    async with harness.manager(disk, **SETTINGS) as manager:
        log = await fill(harness, manager)
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"preadv"}), errno=errno.EIO))
        await manager.scrubber.scrub()
        (damage,) = manager.context.damage
        assert damage.path == log.store.files.segments[0].data_path
        assert "cannot be read" in damage.message
        assert log.store.is_usable
