"""A batch that is written at once, in one piece, leaves what one leaves that goes through a memstore."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import Any

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.storage.clock import ManualClock
from ottla.storage.config import TimestampType
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.format.block import RunKind
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.store.maintenance import maintain
from tests.storage.conftest import Harness

SETTINGS: list[dict[str, Any]] = [
    {},
    {"flush_messages": 3},
    {"compact": True},
    {"segment_bytes": 2_000},
    {"message_timestamp_type": TimestampType.LOG_APPEND_TIME},
]
STEPS = ["large", "idempotent", "checkpoint", "flush", "by the loop", "no descriptor", "note"]
PRODUCED = st.tuples(st.integers(0, 2), st.lists(st.binary(max_size=40), min_size=1, max_size=3), st.integers(0, 2))


def append_alone(harness: Any, log: PartitionLog, *values: bytes, **options: Any) -> None:
    harness.append(log, *values, alone=True, **options)


def append_gathered(harness: Any, log: PartitionLog, *values: bytes, **options: Any) -> None:
    log.store.writer.hold()
    try:
        harness.append(log, *values, **options)
    finally:
        log.store.writer.write_gathered()


@given(
    settings_of_topic=st.sampled_from(SETTINGS),
    steps=st.lists(st.one_of(PRODUCED, st.sampled_from(STEPS)), max_size=30),
)
@settings(max_examples=30, deadline=None)
def test_both_ways_leave_the_same(settings_of_topic: dict[str, Any], steps: list[Any]) -> None:
    """The same bytes in the files, the same states, the same blocks in memory."""
    ways = [partial(history, way, settings_of_topic, steps) for way in (append_alone, append_gathered)]
    alone, gathered = [trio.run(way, clock=trio.testing.MockClock(autojump_threshold=0)) for way in ways]
    assert alone == gathered


async def history(append: Callable[..., None], settings_of_topic: dict[str, Any], steps: list[Any]) -> list[Any]:
    """What the files, the logs and the tail say after each step."""
    disk, harness = SimulatedDisk(1), Harness("/data", ManualClock())
    seen: list[Any] = []
    async with harness.manager(disk) as manager:
        logs = [await harness.open(manager, partition, **settings_of_topic) for partition in range(3)]
        store, epoch, sequence = logs[0].store, 0, 0

        def look() -> None:
            files, tail = store.files, manager.context.tail
            seen.append((files.next_sequence, files.unsynced_bytes, tail.size_bytes, len(tail)))
            seen.append([(segment.size_bytes, bytes(segment.pending_index)) for segment in files.segments])
            seen.append([(it.state(0)[0], it.flushed_end_offset, it.unwritten_bytes, it.size_bytes) for it in logs])
            seen.append(
                [[(group.base_offset, group.last_offsets, group.position) for group in it._tail] for it in logs]
            )
            seen.append((sorted(it.key for it in store.dirty), manager.context.written_bytes))
            seen.append((store.writer.is_running, store.writer._crowd.alone_left))

        harness.append(logs[0], b"makes the file", key=b"k")
        await store.writer.flush(sync=False)
        await trio.testing.wait_all_tasks_blocked()
        for step in steps:
            harness.clock.advance(7)
            if isinstance(step, tuple):
                partition, values, epoch_step = step
                epoch += epoch_step
                append(harness, logs[partition], *values, leader_epoch=epoch, key=b"k")
            elif step == "large":
                append(harness, logs[0], b"x" * 70_000, leader_epoch=epoch, key=b"k")
            elif step == "idempotent":
                append(
                    harness, logs[1], b"i", leader_epoch=epoch, key=b"k",
                    producer_id=5, producer_epoch=0, base_sequence=sequence,
                )  # fmt: skip
                sequence += 1
            elif step == "by the loop":
                harness.append(logs[2], b"by the loop", leader_epoch=epoch, key=b"k")
            elif step == "checkpoint":
                await maintain(store)
                await trio.testing.wait_all_tasks_blocked()
            elif step == "flush":
                await logs[0].flush()
                await trio.testing.wait_all_tasks_blocked()
            elif step == "note":
                store.writer.add_note(logs[0], RunKind.LOG_START, epoch, logs[0].log_start_offset)
            else:
                disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EMFILE))
                append(harness, logs[0], b"later", leader_epoch=epoch, key=b"k")
            look()
            await trio.testing.wait_all_tasks_blocked()
        await store.writer.flush(sync=True)
        await maintain(store)  # the checkpoint tells what is known of producers
        await harness.settle()
        await trio.testing.wait_all_tasks_blocked()
        look()
        seen.append([await harness.read_all(it) for it in logs])
        folder = store.files.directory
        seen.append({name: disk.read_file(f"{folder}/{name}") for name in disk.listdir(folder)})
    return seen
