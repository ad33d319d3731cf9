"""One file is damaged, and then the process or the machine dies again and again: what comes after the damage stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest

from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import CorruptLogError
from ottla.storage.log.partition_log import PartitionLog

PARTITIONS = 3
CHANGES = frozenset({"create", "pwritev", "fdatasync", "rename", "unlink", "truncate", "fsync_directory"})


class Kept(NamedTuple):
    """A record, and whether it has to be there: damage or a loss of power may have taken those that came before."""

    value: bytes
    is_sure: bool


class Life:
    """A store in its folder, through all its starts."""

    def __init__(self, harness: Any, seed: int) -> None:
        self.harness = harness
        self.rng = rng = Random(seed)
        self.disk = SimulatedDisk(seed)
        self.settings = {
            "segment_bytes": rng.choice((800, 2000, 100_000)),
            "checkpoint_bytes": rng.choice((500, 3000, 1_000_000)),
            "cleaner_backoff_ms": 1 << 40,
            "tail_cache_bytes": 0,
        }
        self.records: list[dict[int, Kept]] = [{} for _ in range(PARTITIONS)]
        self.is_known_to_lack = False

    async def start(self, appends: int, dies_after: int | None = None) -> None:
        """Look at what is there, append, and end in order or by the death of the process."""
        self.disk.faults.clear()
        try:
            await self.live(appends, dies_after)
        except BaseException as error:
            is_wrong = isinstance(error, BaseExceptionGroup) and error.subgroup(AssertionError) is not None
            if is_wrong or isinstance(error, AssertionError) or not self.disk.is_dead:
                raise
        if self.disk.is_dead:
            self.disk = self.disk.crash()

    async def live(self, appends: int, dies_after: int | None) -> None:
        async with self.harness.manager(self.disk, **self.settings) as manager:
            if dies_after is not None:
                self.disk.faults.add(Fault(FaultKind.CRASH, CHANGES, after=dies_after))
            logs = [await self.harness.open(manager, index) for index in range(PARTITIONS)]
            # Nobody has told the cluster.
            assert logs[0].may_lack_records or not self.is_known_to_lack, "it is forgotten that records may be missing"
            self.is_known_to_lack = logs[0].may_lack_records
            for log, records in zip(logs, self.records, strict=True):
                await self.check(log, records)
            for _ in range(appends):
                await self.append(self.rng.choice(logs))

    def lose_power(self) -> None:
        """What was synced is there as well, unless it follows damage that may be a torn write."""
        self.disk = self.disk.power_loss()
        self.doubt()

    def doubt(self) -> None:
        """Of no record is it known any more whether it is there."""
        for records in self.records:
            records.update({offset: kept._replace(is_sure=False) for offset, kept in records.items()})

    async def append(self, log: PartitionLog) -> None:
        value = b"%d" % self.rng.randrange(10**9) + b"x" * self.rng.randrange(150)
        offset = self.harness.append(log, value).base_offset
        await log.store.writer.flush(sync=self.rng.random() < 0.3)
        self.records[log.partition][offset] = Kept(value, is_sure=True)
        if self.rng.random() < 0.1:
            await self.harness.settle()

    async def check(self, log: PartitionLog, records: dict[int, Kept]) -> None:
        found: dict[int, bytes | None] = {}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                part = await self.harness.read_records(log, offset)
            except CorruptLogError as error:
                offset = max(error.resumes_at, offset + 1)
                continue
            found.update(part)
            offset = part[-1][0] + 1 if part else offset + 1
        for offset, kept in list(records.items()):
            if found.get(offset) != kept.value:
                assert not kept.is_sure, f"{log} has {found.get(offset)!r} at offset {offset}, and not {kept.value!r}"
                del records[offset]

    def damage(self) -> None:
        """An accident to one file, or to a segment's data and index."""
        self.disk.faults.clear()
        (directory,) = self.directories()
        names = self.disk.listdir(directory)
        name = max(it for it in names if it.endswith(".data")) if self.rng.random() < 0.5 else self.rng.choice(names)
        path = f"{directory}/{name}"
        kind = self.rng.choice(["lost", "lost with its index", "cut", "flipped"])
        if kind.startswith("lost"):
            self.disk.unlink(path)
            index = f"{path.removesuffix('.data')}.index"
            if kind != "lost" and self.disk.exists(index):
                self.disk.unlink(index)
        else:
            content = self.disk.read_file(path)
            handle = self.disk.open_write(path)
            at = self.rng.randrange(len(content)) if content else 0
            if kind == "cut":
                self.disk.truncate(handle, at)
            elif content:
                self.disk.pwritev(handle, [bytes([content[at] ^ 1 << self.rng.randrange(8)])], at)
            self.disk.close(handle)
        self.doubt()

    def directories(self) -> Iterator[str]:
        node = f"{self.harness.folder}/node-0"
        return (f"{node}/{name}/0" for name in self.disk.listdir(node) if name.startswith("topic."))


@pytest.mark.parametrize("seed", range(int(os.environ.get("DAMAGE_SEEDS", "15"))))
async def test_what_comes_after_damage_stays(harness: Any, seed: int) -> None:
    life = Life(harness, seed)
    rng = life.rng
    await life.start(rng.randrange(1, 30))
    if rng.random() < 0.6:
        await life.start(40, dies_after=rng.randrange(5, 80))
    life.damage()
    for _ in range(rng.randrange(2, 5)):
        await life.start(rng.randrange(20), dies_after=rng.choice((None, rng.randrange(60))))
        if rng.random() < 0.3:
            life.lose_power()
