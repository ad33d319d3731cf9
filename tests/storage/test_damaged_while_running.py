"""Damage in files of a process that was killed, while the machine ran on: it costs what it hit, and nothing else."""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.kproto.records import Compression
from ottla.storage.disk import RealDisk
from ottla.storage.errors import CorruptLogError
from ottla.storage.format.block import build_block_head, log_key, pack_run
from ottla.storage.format.block_scan import BlockHead, scan_heads
from ottla.storage.inspect.fsck import check_node

COUNT = 60
PARTITIONS = 3
# A file that is being written may get its name while its folder is copied.
_UNFINISHED = shutil.ignore_patterns("*.new", "*.tmp")


def value(number: int) -> bytes:
    return b"%d:" % number + b"x" * 100


class Killed:
    """The folder of a store as a kill left it: 60 records over three partitions, each in a block of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def data_files(self) -> list[Path]:
        return sorted(self.folder.glob("*.data"))

    def blocks(self, path: Path) -> list[BlockHead]:
        disk = RealDisk()
        handle = disk.open_read(str(path))
        try:
            return list(scan_heads(disk, handle, path.stat().st_size))
        finally:
            disk.close(handle)

    def change(self, path: Path, position: int, content: bytes) -> None:
        whole = bytearray(path.read_bytes())
        assert whole[position : position + len(content)] != content
        whole[position : position + len(content)] = content
        path.write_bytes(bytes(whole))


@asynccontextmanager
async def killed(harness: Any, *, segment_bytes: int = 1 << 30, checkpoint_at: int = -1) -> AsyncIterator[Killed]:
    """What a kill leaves: nothing is sealed by a stop, and no checkpoint is written but the one that is asked for."""
    async with harness.manager(segment_bytes=segment_bytes) as manager:
        logs = [await harness.open(manager, partition) for partition in range(PARTITIONS)]
        for number in range(COUNT):
            harness.append(logs[number % PARTITIONS], value(number))
            await logs[0].store.writer.flush(sync=False)
            if number == checkpoint_at:
                manager.maintenance.request(logs[0].store)
                await manager.maintenance.wait_idle()
        folder = Path(logs[0].store.files.directory)
        kept = folder.parents[2] / "kept"
        shutil.copytree(folder, kept, ignore=_UNFINISHED)
    shutil.rmtree(folder)
    shutil.move(kept, folder)
    yield Killed(folder)


async def found(harness: Any) -> tuple[list[dict[int, bytes]], list[list[int]], list[int]]:
    """Of each partition the records that are served, the offsets that are refused, and the end."""
    served, refused, ends = [], [], []
    async with harness.manager(tail_cache_bytes=0) as manager:
        for partition in range(PARTITIONS):
            log = await harness.open(manager, partition)
            records: dict[int, bytes] = {}
            lost: list[int] = []
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                try:
                    part = await harness.read_records(log, offset)
                    offset = part[-1][0] + 1
                    records.update(part)
                except CorruptLogError as error:
                    lost += range(offset, error.resumes_at)
                    offset = max(offset + 1, error.resumes_at)
            served.append(records)
            refused.append(lost)
            ends.append(log.log_end_offset)
    return served, refused, ends


def all_but(*numbers: int) -> list[dict[int, bytes]]:
    return [
        {n // PARTITIONS: value(n) for n in range(partition, COUNT, PARTITIONS) if n not in numbers}
        for partition in range(PARTITIONS)
    ]


@pytest.mark.parametrize(
    ("segment_bytes", "checkpoint_at"),
    [
        pytest.param(1 << 30, -1, id="without a checkpoint"),
        pytest.param(1 << 30, 10, id="after one"),
        pytest.param(3000, -1, id="in the last of several segments"),
    ],
)
async def test_a_damaged_head_costs_its_block(
    harness: Any, segment_bytes: int, checkpoint_at: int, caplog: Any
) -> None:
    async with killed(harness, segment_bytes=segment_bytes, checkpoint_at=checkpoint_at) as it:
        path = it.data_files[-1]
        head = it.blocks(path)[-4]
        (run,) = head.runs
        it.change(path, head.position + 50, b"\xff\xff")
        number = run.base_offset * PARTITIONS + run.key[-1]
        caplog.set_level(logging.ERROR)
        for _ in range(2):
            served, refused, ends = await found(harness)
            assert served == all_but(number)
            assert refused == [[run.base_offset] if run.key[-1] == n else [] for n in range(PARTITIONS)]
            assert ends == [COUNT // PARTITIONS] * PARTITIONS
        assert f"damaged between bytes {head.position} and {head.end}" in caplog.text
        assert not list(it.folder.glob("*.cut*"))
        assert check_node(RealDisk(), str(it.folder.parents[1])).is_damaged
        async with harness.manager(tail_cache_bytes=0) as manager:
            log = await harness.open(manager, run.key[-1])
            harness.append(log, b"after")
            await log.store.writer.flush(sync=False)
            assert (await harness.read_records(log, log.log_end_offset - 1))[-1][1] == b"after"
            with pytest.raises(CorruptLogError) as raised:
                await harness.read_records(log, run.base_offset)
            assert raised.value.resumes_at == run.base_offset + 1


async def test_a_damaged_batch_costs_itself(harness: Any) -> None:
    async with killed(harness) as it:
        (path,) = it.data_files
        head = it.blocks(path)[31]
        it.change(path, head.end - 1, b"?")
        served, refused, ends = await found(harness)
        assert served == all_but(31)
        assert refused == [[], [10], []]
        assert ends == [20] * PARTITIONS


async def test_several_stretches_and_whole_blocks(harness: Any) -> None:
    async with killed(harness) as it:
        (path,) = it.data_files
        blocks = it.blocks(path)
        first, last = blocks[20], blocks[23]
        it.change(path, first.position + 3, bytes(last.end - first.position - 10))
        it.change(path, blocks[40].position, b"....")
        served, refused, _ = await found(harness)
        assert served == all_but(20, 21, 22, 23, 40)
        assert [len(each) for each in refused] == [1, 2, 2]


async def test_what_is_lost_at_the_end_of_a_log_is_its_end(harness: Any, caplog: Any) -> None:
    """Nothing tells what the last runs of a log were: it ends before them, and that is said."""
    async with killed(harness) as it:
        (path,) = it.data_files
        blocks = it.blocks(path)
        it.change(path, blocks[57].position, b"....")
        served, refused, ends = await found(harness)
        assert served == all_but(57)
        assert refused == [[], [], []]
        assert ends == [19, 20, 20]
        assert "is damaged between" in caplog.text


async def test_a_torn_last_block_is_cut(harness: Any, caplog: Any) -> None:
    async with killed(harness) as it:
        (path,) = it.data_files
        last = it.blocks(path)[-1]
        path.write_bytes(path.read_bytes()[:-20])
        served, _, ends = await found(harness)
        assert served == all_but(59)
        assert ends == [20, 20, 19]
        assert "damaged" not in caplog.text
        assert path.stat().st_size == last.position


async def test_after_a_power_cut_a_prefix_is_kept(harness: Any, monkeypatch: Any) -> None:
    async with killed(harness) as it:
        (path,) = it.data_files
        it.change(path, it.blocks(path)[30].position, b"....")
        monkeypatch.setattr(RealDisk, "boot_id", lambda _: "another boot")
        served, _, ends = await found(harness)
        assert served == [{o: v for o, v in log.items() if o < 10} for log in all_but()]
        assert ends == [10, 10, 10]


# The last bytes of its base offset and of its leader epoch, which the checksum of a batch does not cover.
@pytest.mark.parametrize("byte", [7, 15])
async def test_a_power_cut_may_leave_a_wrong_place_or_epoch(harness: Any, byte: int, monkeypatch: Any) -> None:
    async with killed(harness) as it:
        (path,) = it.data_files
        (run,) = it.blocks(path)[30].runs
        it.change(path, run.position + byte, b"\x77")
        monkeypatch.setattr(RealDisk, "boot_id", lambda _: "another boot")
        served, _, ends = await found(harness)
        assert served == [{o: v for o, v in log.items() if o < 10} for log in all_but()]
        assert ends == [10, 10, 10]


async def test_a_truncation_that_was_lost_is_seen_by_what_follows(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        for number in range(10):
            harness.append(log, value(number))
            await log.store.writer.flush(sync=False)
        await log.truncate_to(6)
        harness.append(log, b"another history", leader_epoch=1)
        await log.store.writer.flush(sync=False)
        folder = Path(log.store.files.directory)
        kept = folder.parents[2] / "kept"
        shutil.copytree(folder, kept, ignore=_UNFINISHED)
    shutil.rmtree(folder)
    shutil.move(kept, folder)
    it = Killed(folder)
    it.change(it.data_files[0], it.blocks(it.data_files[0])[10].position, b"....")
    async with harness.manager(tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        assert log.log_end_offset == 7
        assert [found for _, found in await harness.read_all(log)] == [*map(value, range(6)), b"another history"]
        assert log.end_offset_for_epoch(0) == (0, 6)


async def test_a_gap_that_a_log_has_of_its_own_is_not_taken_for_lost(harness: Any) -> None:
    """A follower's log has gaps where its leader's compaction has been: one block behind the damage says so."""
    async with harness.manager() as manager:
        log, other = [await harness.open(manager, partition) for partition in range(2)]
        for number, target in enumerate((log, other, other, log, other)):
            harness.append(target, value(number))
            await target.store.writer.flush(sync=False)
        batch = harness.batch([value(9)])
        batch[:8] = (9).to_bytes(8, "big")
        batch[12:16] = (0).to_bytes(4, "big")
        log.append_as_follower(batch, None, now_ms=1)
        await log.store.writer.flush(sync=False)
        folder = Path(log.store.files.directory)
        kept = folder.parents[2] / "kept"
        shutil.copytree(folder, kept, ignore=_UNFINISHED)
    shutil.rmtree(folder)
    shutil.move(kept, folder)
    it = Killed(folder)
    it.change(it.data_files[0], it.blocks(it.data_files[0])[2].position, b"....")
    async with harness.manager(tail_cache_bytes=0) as manager:
        log, other = [await harness.open(manager, partition) for partition in range(2)]
        assert await harness.read_all(log) == [(0, value(0)), (1, value(3)), (9, value(9))]
        with pytest.raises(CorruptLogError):
            await harness.read_records(other, 1)
        assert await harness.read_all(other, 2) == [(2, value(4))]


async def test_the_image_of_a_block_in_a_record_is_no_block(harness: Any) -> None:
    """A client cannot have its bytes taken for the store's, even where damage makes a recovery look for blocks."""
    key = log_key(harness.topic_id.bytes, 0)
    async with harness.manager() as manager:
        log = await harness.open(manager)
        harness.append(log, value(0))
        await log.store.writer.flush(sync=False)
        for sequence in range(1, 4):
            stolen = pack_run(key, 0, 0, -1, -1, 0, 0, 3)  # the deletion of the partition
            image = build_block_head(sequence, 40 + 64, 0, [stolen])
            harness.append(log, b"." * 300 + image + b"." * 300, compression=Compression.NONE)
            await log.store.writer.flush(sync=False)
        for number in range(4, 8):
            harness.append(log, value(number))
            await log.store.writer.flush(sync=False)
        folder = Path(log.store.files.directory)
        kept = folder.parents[2] / "kept"
        shutil.copytree(folder, kept, ignore=_UNFINISHED)
    shutil.rmtree(folder)
    shutil.move(kept, folder)
    it = Killed(folder)
    (path,) = it.data_files
    # Damage before the image makes the search meet it.
    it.change(path, it.blocks(path)[1].position, b"....")
    assert path.read_bytes().count(b"OtBk") == 10
    async with harness.manager(tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        assert log.log_end_offset == 8
        assert [offset for offset, _ in await harness.read_all(log, 4)] == [4, 5, 6, 7]
        with pytest.raises(CorruptLogError):
            await harness.read_records(log, 1)
