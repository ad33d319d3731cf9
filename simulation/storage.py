"""The storage engine on a disk that crashes, tears and fails, against a plain model; one seed is one life.

The model is a history of events. Whatever happens, what a restart finds must be the state after some prefix of that
history, the same for all partitions of the store: no shorter than what was acknowledged (after a killed process) or
synced (after a power cut), and byte for byte what was appended. Producers, transactions and epochs are part of it.
Now and then the last thing that happens is a flipped bit at rest: then less may be found, but nothing that never was.

    python -m simulation.storage --seeds 5000 [--first 0]
"""

from __future__ import annotations

import argparse
import errno
import logging
import sys
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import trio
import trio.testing
from trio._core import _run as _trio_run

from ottla.kproto.records import (
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    iter_batches,
    iter_records,
)
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig, StoreLayout
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import StorageError
from ottla.storage.log.partition_log import AppendOrigin, PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.reading.plan import ReadPlan, read
from simulation.storage_model import Batch, Event, Found, PartitionModel, State, state_after

# Trio shuffles its tasks on purpose; a seed must replay.
_trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]

FOLDER = "/data"
TOPIC_ID = UUID("0a0b0c0d-0000-4000-8000-000000000001")
_IDEMPOTENT = 7
_TRANSACTIONAL = (21, 22)


class SimulationError(AssertionError):
    """The engine did what it must not do; the message begins with the seed."""


class Simulation:
    """One seed's life: a store of a few partitions, many operations, several deaths."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.disk = SimulatedDisk(rng.getrandbits(32), cold_probability=rng.choice((0.0, 0.3, 1.0)))
        self.clock = ManualClock()
        self.config = StorageConfig(
            producer_id_expiration_ms=1 << 60,
            store_layout=rng.choice(list(StoreLayout)),
            memstore_bytes=rng.choice((500, 4000)),
            run_bytes=rng.choice((200, 2000)),
            segment_bytes=rng.choice((1500, 6000, 1 << 20)),
            checkpoint_bytes=rng.choice((500, 5000, 1 << 20)),
            tail_cache_bytes=rng.choice((0, 2000, 1 << 20)),
            inline_write_bytes=rng.choice((0, 1 << 20)),
            inline_read_bytes=rng.choice((0, 1 << 20)),
            fd_cache_capacity=rng.choice((1, 8)),
            rewrite_dead_ratio=rng.choice((0.01, 0.5)),
        )
        self.compacting = rng.random() < 0.3
        self.log_config = LogConfig(
            delete=False,
            compact=self.compacting,
            min_cleanable_dirty_ratio=0.01,
            flush_messages=rng.choice((1, 1, 5, 1 << 40)),
        )
        self.partitions = rng.randint(1, 5)
        self.events: list[Event] = []
        self.written = 0
        self.synced = 0
        self.epoch = 0
        self.next_value = 0
        self.trace: list[str] = []
        # Every value that was ever at an offset of a partition.
        self.history: defaultdict[int, set[tuple[int, bytes]]] = defaultdict(set)
        # Where the last read of a partition ended: many go on from there.
        self.read_ends: dict[int, int] = {}
        self.logs: dict[int, PartitionLog] = {}
        self.manager: LogManager

    # The model.

    def state_after(self, count: int) -> State:
        """The partitions' state after the first events."""
        return state_after(self.partitions, self.events[:count])

    def check(self, condition: bool, message: str) -> None:
        if not condition:
            raise SimulationError(f"seed {self.seed}: {message}\n" + "\n".join(self.trace[-40:]))

    def note(self, text: str) -> None:
        self.trace.append(text)

    # Lives.

    def run(self) -> str:
        """Live; returns a digest of all that happened."""
        for _ in range(self.rng.randint(2, 5)):
            _trio_run._r.seed(self.seed)
            trio.run(self._life, clock=trio.testing.MockClock(autojump_threshold=0))
        if self.rng.random() < 0.2:
            _trio_run._r.seed(self.seed)
            trio.run(self._damaged_life, clock=trio.testing.MockClock(autojump_threshold=0))
        return f"{len(self.events)} events, {self.disk.operation_count} operations, {hash(tuple(self.trace))}"

    async def _life(self) -> None:
        """Start, compare with the model, work, and die or stop in some way."""
        disk = self.disk
        is_clean = False

        manager = LogManager(disk, FOLDER, self.config, self.clock, run_blocking=_in_place)
        try:
            async with manager.run():
                await self._open(manager)
                await self._compare()
                self._arm_faults()
                await self._work(manager)
            is_clean = not disk.is_dead and all(log.store.error is None for log in self.logs.values())
        except* (OSError, StorageError) as group:
            self.note(f"ended by {group.exceptions[0]!r}")
        if is_clean:
            self.written = self.synced = len(self.events)
            self.check(disk.open_handles == 0, f"{disk.open_handles} files are left open")
            self.check(manager.context.pool.counters.in_use == 0, "a buffer was not given back")
        disk.faults.clear()
        if self.rng.random() < 0.5:
            self.note("power loss")
            self.disk = disk.power_loss()
            self.written = self.synced
        else:
            self.note("process killed" if not is_clean else "stopped")
            self.disk = disk.crash()

    async def _open(self, manager: LogManager) -> None:
        self.logs = {
            partition: await manager.open_log(TOPIC_ID, "topic", partition, self.log_config)
            for partition in range(self.partitions)
        }

    async def _compare(self) -> None:
        """What the restart found is the state after one prefix of the history."""
        found = {}
        for partition, log in self.logs.items():
            found[partition] = (log.log_start_offset, log.log_end_offset, await self._read_all(log))
            self.check(log.flushed_end_offset == log.log_end_offset, "something unflushed after a restart")
        for count in range(len(self.events), self.written - 1, -1):
            state = self.state_after(count)
            if all(model.fits(found[partition], compacting=self.compacting) for partition, model in state.items()):
                break
        else:
            expected = self.state_after(self.written)
            self.check(
                False,
                f"found {found}\nnothing from event {self.written} of {len(self.events)} on fits, which is "
                f"{ {p: (m.log_start, m.log_end, m.records()) for p, m in expected.items()} }",
            )
        for partition, model in state.items():
            log = self.logs[partition]
            if model.live_batches():
                self.check(log.latest_epoch == model.latest_epoch(), f"epoch {log.latest_epoch} of {partition}")
            for producer_id, sequence in model.last_sequences().items():
                entry = log.producers.get(producer_id) if log.producers is not None else None
                self.check(
                    entry is not None and entry.last_sequence == sequence,
                    f"producer {producer_id} of {partition} is at {entry and entry.last_sequence}, not {sequence}",
                )
            self._compare_transactions(log, model, found[partition])
        self.note(f"restarted with {count} of {len(self.events)} events, {self.written} were due")
        del self.events[count:]
        self.written = count
        self.synced = min(self.synced, count)
        self.epoch += 1

    def _compare_transactions(self, log: PartitionLog, model: PartitionModel, found: Found) -> None:
        """Readers of committed records see those, and up to the first open transaction."""
        transactions = model.transactions()
        first = min(transactions.open_since.values(), default=model.log_end)
        # Of one that began before the log's start, a part or nothing may be known after a restart.
        least, most = (first, first) if first >= model.log_start else (model.log_start, model.log_end)
        found_stable = log.last_stable_offset
        self.check(least <= found_stable <= most, f"last stable offset {found_stable}, not {least} to {most}")
        held = dict(found[2])
        aborted = log.aborted_transactions(model.log_start, model.log_end)
        for batch in model.batches:
            if batch.base_offset < model.log_start or batch.base_offset not in transactions.committed:
                continue
            is_aborted = any(
                each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset < each.last_offset
                for each in aborted
            )
            commits = transactions.committed[batch.base_offset]
            if commits or not held.keys().isdisjoint(range(batch.base_offset, batch.last_offset + 1)):
                self.check(is_aborted != commits, f"the batch at {batch.base_offset} of {log}: aborted is {is_aborted}")

    async def _damaged_life(self) -> None:
        """Flip a bit in some file; whatever is still read was there once, before and after a cleaning."""
        disk = self.disk
        files = [path for path in _files_in(disk, FOLDER) if disk.size_of(path)]
        if not files:
            return
        path = self.rng.choice(files)
        self.note(f"bit {disk.flip_bit(path)} of {path} flipped")
        manager = LogManager(disk, FOLDER, self.config, self.clock, run_blocking=_in_place)
        try:
            async with manager.run():
                await self._open(manager)
                for _ in range(2):
                    for partition, log in self.logs.items():
                        await self._read_what_is_left(partition, log)
                    await manager.clean()
        except* (OSError, StorageError) as group:
            self.note(f"ended by {group.exceptions[0]!r}")

    async def _read_what_is_left(self, partition: int, log: PartitionLog) -> None:
        offset = log.log_start_offset
        while offset < log.flushed_end_offset:
            plan = log.plan_read(offset, max_bytes=1, end_offset=log.flushed_end_offset, min_one_batch=True)
            await read([plan])
            if plan.error is not None:
                self.check(isinstance(plan.error, StorageError), f"a read of {log} failed with {plan.error!r}")
                offset += 1
                continue
            assert plan.records is not None
            for record in _records(plan.records.to_bytes()):
                self.check(record in self.history[partition], f"{record} of {log} never was")
            plan.release()
            offset = max(plan.next_offset, offset + 1)

    def _arm_faults(self) -> None:
        """Perhaps something will fail, or the process die in the middle of an operation."""
        choice = self.rng.random()
        after = self.rng.randint(1, 60)
        if choice < 0.35:
            self.disk.faults.add(Fault(FaultKind.CRASH, after=after))
        elif choice < 0.5:
            operations = frozenset({self.rng.choice(("pwritev", "fdatasync", "create", "rename"))})
            code = self.rng.choice((errno.EIO, errno.ENOSPC))
            self.disk.faults.add(Fault(FaultKind.ERROR, operations, errno=code, after=after % 10))

    async def _work(self, manager: LogManager) -> None:
        operations: list[tuple[int, Callable[[int, PartitionLog], Any]]] = [
            (40, self._append),
            (4, self._end_transaction),
            (10, self._flush),
            (15, self._let_run),
            (12, self._check_read),
            (3, self._truncate),
            (3, self._move_start),
            (1, self._restart_at),
            (1, self._roll),
            (2, self._clean),
        ]
        self.manager = manager
        weights = [weight for weight, _ in operations]
        for _ in range(self.rng.randint(5, 80)):
            operation = self.rng.choices(operations, weights)[0][1]
            partition = self.rng.randrange(self.partitions)
            await operation(partition, self.logs[partition])
            self._observe()

    def _observe(self) -> None:
        """Move the lower bound of what a killed process must find again."""
        state = self.state_after(len(self.events))
        if all(
            log.flushed_end_offset == state[p].log_end and not log.store.writer.active.has_work
            for p, log in self.logs.items()
        ):
            self.written = len(self.events)
            if self.log_config.flush_messages == 1 and next(iter(self.logs.values())).store.files.unsynced_bytes == 0:
                self.synced = self.written

    # Operations.

    async def _append(self, partition: int, log: PartitionLog) -> None:
        if not log.has_room:
            await log.wait_for_room()
        values = []
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            values.append(b"%d:" % self.next_value + b"x" * self.rng.choice((0, 10, 300)))
            self.next_value += 1
        keys = [b"k%d" % self.rng.randrange(4) for _ in values]
        choice = self.rng.random()
        producer_id = -1 if choice > 0.4 else _IDEMPOTENT if choice > 0.2 else self.rng.choice(_TRANSACTIONAL)
        entry = log.producers.get(producer_id) if log.producers is not None else None
        sequence = -1 if producer_id < 0 else entry.last_sequence + 1 if entry is not None else 0
        if self.rng.random() < 0.05:
            self.epoch += 1
        content = build_batch(
            [
                Record(timestamp_ms=self.clock.time_ms(), key=key, value=value)
                for key, value in zip(keys, values, strict=True)
            ],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            is_transactional=producer_id in _TRANSACTIONAL,
        )
        batch = Batch(
            log.log_end_offset, values, self.epoch, producer_id, sequence, keys, producer_id in _TRANSACTIONAL
        )
        self._take(partition, log, content, batch, AppendOrigin.CLIENT)

    async def _end_transaction(self, partition: int, log: PartitionLog) -> None:
        """Write a marker; sometimes there is no transaction that it would end."""
        if not log.has_room:
            await log.wait_for_room()
        producer_id = self.rng.choice(_TRANSACTIONAL)
        commits = self.rng.random() < 0.5
        marker = EndTxnMarker(producer_id, 0, 0, is_commit=commits)
        content = build_end_txn_marker(marker, timestamp_ms=self.clock.time_ms())
        batch = Batch(log.log_end_offset, [], self.epoch, producer_id, commits=commits)
        self._take(partition, log, content, batch, AppendOrigin.COORDINATOR)

    def _take(self, partition: int, log: PartitionLog, content: bytes, batch: Batch, origin: AppendOrigin) -> None:
        if self.rng.random() < 0.5:
            log.store.writer.hold()
        try:
            info = log.append_as_leader(
                memoryview(bytearray(content)),
                None,
                leader_epoch=self.epoch,
                origin=origin,
                now_ms=self.clock.time_ms(),
            )
        finally:
            log.store.writer.write_gathered(more_expected=self.rng.random() < 0.2)
        assert (info.base_offset, info.last_offset) == (batch.base_offset, batch.last_offset)
        self.events.append((partition, lambda model: model.append(batch)))
        self.history[partition].update(batch.records(0))
        kind = "append" if batch.commits is None else "commit" if batch.commits else "abort"
        self.note(f"{kind} {partition}: {info.base_offset}-{info.last_offset} by {batch.producer_id}")

    async def _flush(self, partition: int, log: PartitionLog) -> None:
        count = len(self.events)
        await log.flush()
        self.written = max(self.written, count)
        self.synced = max(self.synced, count)
        self.note(f"synced {count} events")

    async def _let_run(self, partition: int, log: PartitionLog) -> None:
        self.clock.advance(10)
        for _ in range(self.rng.randint(1, 5)):
            await trio.lowlevel.checkpoint()

    async def _truncate(self, partition: int, log: PartitionLog) -> None:
        model = self.state_after(len(self.events))[partition]
        bounds = [batch.base_offset for batch in model.live_batches() if batch.base_offset >= model.log_start]
        if self.compacting:
            # What is below the high watermark is never truncated: compaction relies on that.
            bounds = [offset for offset in bounds if offset >= log.high_watermark]
        if bounds:
            offset = self.rng.choice(bounds)
            self.events.append((partition, lambda model: model.truncate(offset)))
            self.note(f"truncate {partition} to {offset}")
            await log.truncate_to(offset)

    async def _move_start(self, partition: int, log: PartitionLog) -> None:
        log.advance_high_watermark(log.flushed_end_offset)
        if log.high_watermark > log.log_start_offset:
            offset = self.rng.randint(log.log_start_offset, log.high_watermark)
            self.events.append((partition, lambda model: model.move_start(offset)))
            self.note(f"log start of {partition} to {offset}")
            await log.advance_log_start_offset(offset)

    async def _restart_at(self, partition: int, log: PartitionLog) -> None:
        offset = log.log_end_offset + self.rng.randint(0, 10)
        self.note(f"restart {partition} at {offset}")
        self.events.append((partition, lambda model: model.restart_at(offset)))
        await log.truncate_fully_and_start_at(offset)

    async def _roll(self, partition: int, log: PartitionLog) -> None:
        store = log.store
        if store.files.active is not None and not store.writer.is_running:
            self.clock.advance(self.config.segment_ms)
            self.note("time to roll")

    async def _clean(self, partition: int, log: PartitionLog) -> None:
        self.note("clean")
        if self.compacting:
            for each in self.logs.values():
                each.advance_high_watermark(each.flushed_end_offset)
        await self.manager.clean()

    async def _check_read(self, partition: int, log: PartitionLog) -> None:
        model = self.state_after(len(self.events))[partition]
        if log.flushed_end_offset <= log.log_start_offset:
            return
        offset = self.read_ends.get(partition, -1)
        if not log.log_start_offset <= offset <= log.flushed_end_offset or self.rng.random() < 0.3:
            offset = self.rng.randint(log.log_start_offset, log.flushed_end_offset)
        end = self.rng.randint(offset, log.flushed_end_offset)
        max_bytes = self.rng.choice((1, 200, 2000, 1 << 20))
        plan = log.plan_read(offset, max_bytes=max_bytes, end_offset=end, min_one_batch=True)
        await read([plan])
        if plan.error is not None:
            raise plan.error
        assert plan.records is not None
        content = plan.records.to_bytes()
        await self._release(plan)
        self.read_ends[partition] = plan.next_offset
        found = [pair for pair in _records(content) if pair[0] >= offset]
        whole = [pair for pair in model.records() if pair[0] >= offset]
        if self.compacting:
            self.check(set(found) <= set(whole), f"read {found} of {partition} at {offset}, expected some of {whole}")
            return
        self.check(found == whole[: len(found)], f"read {found} of {partition} at {offset}, expected {whole}")
        self.check(len(content) <= max_bytes or len(list(iter_batches(content))) == 1, "a read is too large")
        ends = [batch.last_offset for batch in model.batches if batch.last_offset >= offset]
        self.check(bool(content) or not ends or ends[0] >= end, f"nothing read of {partition} at {offset} up to {end}")

    async def _release(self, plan: ReadPlan) -> None:
        """A client has got it, and perhaps asks for more before the range that follows has been read ahead."""
        plan.release()
        for _ in range(self.rng.randint(0, 4)):
            await trio.lowlevel.checkpoint()

    async def _read_all(self, log: PartitionLog) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        offset = log.log_start_offset
        while offset < log.flushed_end_offset:
            plan = log.plan_read(offset, max_bytes=1000, end_offset=log.flushed_end_offset, min_one_batch=True)
            await read([plan])
            if plan.error is not None:
                raise SimulationError(f"seed {self.seed}: {log} at {offset}: {plan.error!r}")
            assert plan.records is not None
            part = [pair for pair in _records(plan.records.to_bytes()) if pair[0] >= offset]
            await self._release(plan)
            found += part
            if plan.next_offset == offset:
                break
            offset = plan.next_offset
        return found


async def _in_place(function: Callable[[], Any]) -> Any:
    await trio.lowlevel.checkpoint()
    return function()


def _files_in(disk: SimulatedDisk, folder: str) -> list[str]:
    paths = [f"{folder}/{name}" for name in disk.listdir(folder)]
    return [each for path in paths for each in (_files_in(disk, path) if disk.is_directory(path) else [path])]


def _records(content: bytes) -> list[tuple[int, bytes]]:
    return [
        (record.offset, record.value or b"")
        for pos, header in iter_batches(content)
        if not header.is_control
        for record in iter_records(content, pos, header)
    ]


def main() -> int:
    """Run many seeds; the first failure is printed and ends it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        try:
            Simulation(seed).run()
        except BaseException:
            print(f"seed {seed} failed", file=sys.stderr)
            raise
    print(f"{arguments.seeds} seeds from {arguments.first} on: all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
