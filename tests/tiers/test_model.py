"""Random histories of two nodes, which both may take themselves for the leader, on a store that fails and is stale.

The model is the log itself. What was deleted from the disk, because a manifest said that it is in the object store,
must be there, byte for byte, until retention gives it up: at every moment, whatever fails.
"""

from __future__ import annotations

from random import Random

import pytest
import trio.testing

from ottla.storage.errors import CorruptLogError
from ottla.tiers.errors import ObjectMissingError, ObjectStoreUnavailableError, TierError
from ottla.tiers.manifest import Manifest
from ottla.tiers.object_store import StoredObject
from ottla.tiers.stores.memory_store import MemoryObjectStore
from ottla.tiers.sweep import SWEEP_AFTER_MS, sweep_topic
from tests.tiers.faults import FaultyObjectStore
from tests.tiers.logs import LogSource, batch
from tests.tiers.test_copying import StoreTime
from tests.tiers.tier import NAMES, PROBE, Tier, inline, read_all, reading

PARTITIONS = 2
STEPS = 60
HOUR_MS = 3_600_000


class Log:
    """One partition: its batches, where it begins on the disk, and the epoch of each batch."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.epochs: list[int] = []
        self.local_start = 0
        self.log_start = 0

    @property
    def end_offset(self) -> int:
        return 3 * len(self.batches)

    def content(self, start: int, end: int) -> bytes:
        return b"".join(self.batches[start // 3 : end // 3])


class History:
    """What happens, by one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.time = StoreTime()
        self.store = MemoryObjectStore(lambda: self.time.now_ms)
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.nodes = [self.node(1), self.node(1_000_000)]
        #: The epochs in which the nodes take themselves for the leader: the last one is.
        self.epochs = [1, 0]
        #: What each manifest was, and when.
        self.versions: dict[str, list[tuple[int, StoredObject]]] = {}
        self.ends = [0] * PARTITIONS
        self.copies = self.refusals = self.swept = self.failures = 0

    def node(self, first_number: int) -> Tier:
        faulty = FaultyObjectStore(self.store)
        faulty.before = faulty.after = self.fail
        faulty.stale = Stale(self)
        return Tier(faulty, first_number=first_number)

    def fail(self, number: int, method: str, name: str) -> None:
        if self.random.random() < 0.02:
            self.failures += 1
            raise ObjectStoreUnavailableError("503 Slow Down")

    async def remember_manifests(self) -> None:
        for partition in range(PARTITIONS):
            name = NAMES.manifest(partition)
            try:
                found = await self.store.get(name)
            except ObjectMissingError:
                continue
            versions = self.versions.setdefault(name, [])
            if not versions or versions[-1][1].version != found.version:
                versions.append((self.time.now_ms, found))

    # What may happen.

    async def step(self) -> None:
        steps = (self.append, self.append, self.copy, self.copy, self.copy, self.retain, self.sweep, self.elect)
        await self.random.choice((*steps, self.restart, self.pass_time))()
        await self.remember_manifests()
        await self.check()

    async def append(self) -> None:
        for log in self.logs:
            for _ in range(self.random.randrange(6)):
                log.batches.append(batch(log.end_offset, epoch=max(self.epochs)))
                log.epochs.append(max(self.epochs))

    async def copy(self) -> None:
        place = self.random.randrange(2)
        node, epoch = self.nodes[place], self.epochs[place]
        sources = {}
        for partition, log in enumerate(self.logs):
            try:
                manifest = await node.file(partition).refresh()
            except TierError:
                continue
            start = manifest.end_offset
            end = start + 3 * self.random.randrange(1, 30)
            if self.epochs[place] and log.local_start <= start < (end := min(end, log.end_offset)):
                batches = log.batches[start // 3 : end // 3]
                previous = log.epochs[start // 3 - 1] if start > log.local_start else -1
                sources[partition] = LogSource(
                    partition, batches, base_offset=start, leader_epoch=epoch, previous_epoch=previous
                )
        if not sources:
            return
        try:
            results = await node.copy(list(sources.values()))
        except (TierError, CorruptLogError):
            return
        for partition, result in results.items():
            if isinstance(result, Manifest):
                self.copies += 1
                # Local retention: as far as it may.
                log = self.logs[partition]
                log.local_start = max(log.local_start, min(result.end_offset, log.end_offset))
            else:
                self.refusals += 1

    async def retain(self) -> None:
        """The leader gives up the oldest records, of both tiers."""
        partition = self.random.randrange(PARTITIONS)
        place = self.epochs.index(max(self.epochs))
        log = self.logs[partition]
        start = log.log_start + 3 * self.random.randrange(10)
        if start > log.local_start:
            return
        log.log_start = max(start, log.log_start)
        try:
            await self.nodes[place].file(partition).change(lambda found: found.with_log_start(start, max(self.epochs)))
        except TierError:
            return

    async def sweep(self) -> None:
        try:
            result = await sweep_topic(self.random.choice(self.nodes).store, NAMES, probe=PROBE, offload=inline)
        except TierError:
            return
        self.swept += result.removed_objects

    async def elect(self) -> None:
        """The other node leads; the one that led has not heard of it."""
        place = self.epochs.index(max(self.epochs))
        self.epochs[1 - place] = max(self.epochs) + 1

    async def restart(self) -> None:
        """A node forgets what it knew, except its note, or even that."""
        place = self.random.randrange(2)
        note = self.nodes[place].note if self.random.random() < 0.7 else None
        self.nodes[place] = self.node(self.random.randrange(1 << 60))
        self.nodes[place].note = note

    async def pass_time(self) -> None:
        self.time.now_ms += self.random.choice((60_000, HOUR_MS, 5 * HOUR_MS, SWEEP_AFTER_MS, 2 * SWEEP_AFTER_MS))

    # What must be true.

    async def check(self) -> None:
        tier = Tier(self.store)
        async with reading(self.store) as reader:
            for partition, log in enumerate(self.logs):
                manifest = await tier.file(partition).refresh()
                assert manifest.end_offset >= self.ends[partition]
                self.ends[partition] = manifest.end_offset
                assert manifest.log_start_offset <= log.log_start
                assert manifest.end_offset >= log.local_start, "what was deleted from the disk is not named"
                start, end = manifest.log_start_offset, manifest.end_offset
                assert await read_all(reader, manifest, start) == log.content(start, end)


class Stale(dict[str, StoredObject]):
    """Sometimes a manifest as it was within the last hour."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def get(self, name: str, default: object = None) -> StoredObject | None:  # type: ignore[override]
        history = self._history
        versions = history.versions.get(name, [])
        if len(versions) < 2 or history.random.random() > 0.2:
            return None
        # The one before the last was the present one until the last was written.
        written_ms, _ = versions[-1]
        return versions[-2][1] if history.time.now_ms - written_ms <= HOUR_MS else None

    def __contains__(self, name: object) -> bool:
        return False


@pytest.mark.parametrize("seed", range(20))
async def test_nothing_is_lost(autojump_clock: trio.testing.MockClock, seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        await history.step()
    print(f"{history.copies} copies, {history.refusals} refused, {history.swept} swept, {history.failures} failures")


async def test_the_histories_have_everything(autojump_clock: trio.testing.MockClock) -> None:
    totals = [0, 0, 0, 0]
    for seed in range(100, 110):
        history = History(seed)
        for _ in range(STEPS):
            await history.step()
        counts = (history.copies, history.refusals, history.swept, history.failures)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
    assert min(totals) > 10, totals
