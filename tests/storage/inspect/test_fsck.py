"""fsck finds each kind of damage, changes nothing, and is content with what the engine writes; dump shows it all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.storage.disk import RealDisk
from ottla.storage.format.segment_header import segment_name
from ottla.storage.inspect.dump import dump_file
from ottla.storage.inspect.fsck import Report, check_node
from ottla.storage.node_dir import NodeDir
from ottla.storage.store.index_files import rebuild_tables, write_sealed_index
from ottla.storage.store.segment import Segment
from ottla.storage.upkeep.reclaim import keep_map, rewrite_segments


async def fill(harness: Any) -> Path:
    """A store of several segments, one of them sorted anew; returns its folder."""
    async with harness.manager(segment_bytes=3000) as manager:
        logs = [await harness.open(manager, partition) for partition in range(3)]
        for number in range(40):
            harness.append(logs[number % 3], b"%d" % number + b"x" * 100)
            await logs[0].flush()
        await logs[1].truncate_to(10)
        await manager.maintenance.wait_idle()
        await manager.clean()
        harness.append(logs[1], b"after")
        return Path(logs[0].store.files.directory)


def check(harness: Any) -> Report:
    return check_node(RealDisk(), os.path.join(harness.folder, "node-0"))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(bytes(content))


async def test_a_sound_store(harness: Any) -> None:
    store = await fill(harness)
    before = {path: path.read_bytes() for path in store.iterdir()}
    report = check(harness)
    assert report.findings == []
    assert report.stores == 1
    assert report.segments == len([path for path in store.iterdir() if path.suffix == ".data"]) > 2
    assert 38 <= report.batches <= 41
    assert {path: path.read_bytes() for path in store.iterdir()} == before


@pytest.mark.parametrize(
    ("suffix", "position", "severity", "message"),
    [
        (".data", 10, "error", "header is damaged"),
        (".data", 70, "error", "no sound block"),
        (".data", -5, "error", "CRC mismatch"),
        (".index", 70, "warning", "rebuilt when it is needed"),
        ("checkpoint", 20, "warning", "reads all blocks"),
    ],
)
async def test_damage_is_found(harness: Any, suffix: str, position: int, severity: str, message: str) -> None:
    store = await fill(harness)
    path = min(path for path in store.iterdir() if path.name.endswith(suffix))
    flip(path, position)
    report = check(harness)
    assert report.is_damaged == (severity == "error")
    assert any(
        finding.severity == severity and message in finding.message and finding.path == str(path)
        for finding in report.findings
    ), report.findings


async def test_a_torn_tail_and_a_missing_index_are_warnings(harness: Any) -> None:
    store = await fill(harness)
    last = max(path for path in store.iterdir() if path.suffix == ".data")
    last.write_bytes(last.read_bytes() + b"OtBk torn")
    min(path for path in store.iterdir() if path.suffix == ".index").unlink()
    report = check(harness)
    assert not report.is_damaged
    assert sorted(finding.message.split(";")[0] for finding in report.findings) == [
        "a torn tail of 9 bytes",
        "the index is missing",
    ]
    async with harness.manager() as manager:
        log = await harness.open(manager, 1)
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(11))


@pytest.mark.parametrize("content", [b"", bytes(64)])
async def test_a_segment_that_had_just_been_made_is_a_warning(harness: Any, content: bytes) -> None:
    """A backup of a running broker has it now and then."""
    store = await fill(harness)
    last = max(path for path in store.iterdir() if path.suffix == ".data")
    following = store / segment_name(int(last.stem.partition("-")[0]) + last.stat().st_size, 0)
    following.with_suffix(".data").write_bytes(content)
    report = check(harness)
    assert not report.is_damaged
    assert "the segment has no header yet" in {finding.message.split(";")[0] for finding in report.findings}
    async with harness.manager() as manager:
        log = await harness.open(manager, 1)
        harness.append(log, b"and after")
        await log.flush()
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(12))
    assert check(harness).findings == []


async def test_a_header_that_a_power_cut_has_torn_is_a_warning(harness: Any) -> None:
    """What is replayed anyway gets a new one."""
    store = await fill(harness)
    (store / "checkpoint").unlink()
    last = max(path for path in store.iterdir() if path.suffix == ".data")
    flip(last, 10)
    report = check(harness)
    assert not report.is_damaged, report.findings
    assert "the segment has no header yet" in {finding.message.split(";")[0] for finding in report.findings}
    async with harness.manager() as manager:
        log = await harness.open(manager, 1)
        assert [offset for offset, _ in await harness.read_all(log)] == list(range(11))
    assert check(harness).findings == []


async def test_dump_shows_every_record(harness: Any) -> None:
    store = await fill(harness)
    items = [
        item
        for path in sorted(store.iterdir())
        if path.suffix == ".data"
        for item in dump_file(RealDisk(), str(path), 3, partition=0)
    ]
    assert [item["offset"] for item in items if item["type"] == "record"] == list(range(14))
    assert all(item["crc_ok"] for item in items if item["type"] == "batch")
    assert {item["type"] for item in items} == {"segment", "block", "run", "batch", "record"}


async def test_an_index_may_lack_what_a_later_segment_makes_void(harness: Any) -> None:
    """The truncation and the deletion come while the segment that they clip is rolled and not sealed yet."""
    async with harness.manager(segment_bytes=1500) as manager:
        log, other = await harness.open(manager, 0), await harness.open(manager, 1)
        for number in range(3):
            harness.append(log, b"%d" % number)
            harness.append(other, b"%d" % number)
            await log.flush()
        async with trio.open_nursery() as nursery, log.store.lock:
            nursery.start_soon(log.truncate_to, 2)
            nursery.start_soon(manager.delete_logs, log.topic_id, [1])
            await wait_all_tasks_blocked()
            for _ in range(3):
                harness.append(log, b"x" * 1000)
                await log.flush()
            assert len(log.store.files.unsealed) > 1
        harness.append(log, b"after")
        await log.flush()
        await harness.settle()
    assert not check(harness).is_damaged


async def test_an_index_lacks_nothing_else(harness: Any) -> None:
    store = await fill(harness)
    index = min(path for path in store.iterdir() if path.suffix == ".index")
    segment = Segment(str(store), int(index.stem.split("-")[0]), int(index.stem.partition("-")[2] or 0))
    segment.found(segment_bytes := index.with_suffix(".data").stat().st_size)
    tables = rebuild_tables(RealDisk(), segment)
    for table in tables.values():
        table.truncate(table.last_offset)
    write_sealed_index(RealDisk(), segment, tables)
    assert segment_bytes
    assert [finding.message for finding in check(harness).findings] == ["the index does not agree with its data file"]


async def test_batches_that_lie_across_the_log_start_are_sound(harness: Any) -> None:
    async with harness.manager(segment_bytes=1000) as manager:
        log, other = await harness.open(manager, 0), await harness.open(manager, 1)
        for _ in range(5):
            harness.append(other, b"x" * 300)
            harness.append(log, b"a", b"b", b"c", b"x" * 300)
            await log.flush()
        await harness.settle()
        log.advance_high_watermark(log.flushed_end_offset)
        await log.advance_log_start_offset(6)
        await other.truncate_fully_and_start_at(7)
        await harness.settle()
        await manager.clean()
        assert any(segment.generation for segment in log.store.files.segments)
    assert not check(harness).is_damaged


async def test_a_deleted_partition_may_have_gone_back(harness: Any) -> None:
    """Its truncation is forgotten where the segment with the mark is written anew after the deletion."""
    async with harness.manager() as manager:
        log, other = [await harness.open(manager, partition, segment_ms=1000) for partition in range(2)]
        for number in range(5):
            harness.append(log, b"%d" % number)
            await log.flush()
        harness.clock.advance(1000)
        await log.truncate_to(3)
        note = log.store.files.segments[-1]
        for appended in ([other], [log], [other]):
            harness.append(appended[0], b"x")
            await other.flush()
            harness.clock.advance(1000)
        await manager.delete_logs(log.topic_id, [0])
        harness.append(other, b"x")
        await other.flush()
        await harness.settle()
        assert note.is_sealed
        await rewrite_segments(other.store, [note], await keep_map(other.store))
    assert not check(harness).is_damaged


@pytest.mark.parametrize(("was_clean", "severity"), [(True, "warning"), (False, "note")])
async def test_a_missing_checkpoint_is_usual_unless_the_node_stopped_in_order(
    harness: Any, was_clean: bool, severity: str
) -> None:
    """A backup of a running broker, or a killed one, has stores that had no checkpoint yet."""
    store = await fill(harness)
    (store / "checkpoint").unlink()
    node_dir = NodeDir(RealDisk(), harness.folder, 0)
    node_dir.open()
    node_dir.close(clean=was_clean)
    report = check(harness)
    assert [finding.severity for finding in report.findings] == [severity]
    assert report.is_sound is not was_clean
