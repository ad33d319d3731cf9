"""What the storage layer's parts cost: buffer pool, producer state, compaction's key map and batch filter.

    python -m benchmarks.steps.storage_parts [--json]

CPU time of this process, which a busy machine disturbs little; the best of several rounds. It only measures: there are
no targets.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from functools import partial

from ottla.kproto.records import Record, build_batch, parse_batch_header
from ottla.storage.memory.buffer_pool import BufferPool, PoolConfig
from ottla.storage.state.producer_state import AppendPlan, ProducerStateManager
from ottla.storage.upkeep.compaction.batch_filter import BatchFilter, index_batch
from ottla.storage.upkeep.compaction.offset_map import OffsetMap
from ottla.storage.upkeep.compaction.transactions import CleanedTransactions

ROUNDS = 5
MIB = 1024 * 1024


def best_ns(count: int, work: Callable[[int], None]) -> float:
    """CPU nanoseconds of one of `count` repetitions, in the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time_ns()
        work(count)
        best = min(best, (time.process_time_ns() - started) / count)
    return round(best)


def faults_each(count: int, work: Callable[[int], None]) -> float:
    """Page faults of one repetition."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work(count)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / count


def pool_figures() -> dict[str, float]:
    pool = BufferPool()
    content = bytes(MIB)

    def acquire_small(count: int) -> None:
        for _ in range(count):
            pool.acquire(16 * 1024).release()

    keeps_nothing = BufferPool(PoolConfig(max_retained_bytes=0))

    def fill(source: BufferPool, count: int) -> None:
        for _ in range(count):
            fragment = source.acquire(MIB)
            fragment.memory[:] = content
            fragment.release()

    fill_pooled = partial(fill, pool)
    fill_fresh = partial(fill, keeps_nothing)

    return {
        "acquire and release 16 KiB, ns": best_ns(100_000, acquire_small),
        "fill a pooled MiB, ns": best_ns(500, fill_pooled),
        "fill a fresh MiB, ns": best_ns(500, fill_fresh),
        "page faults, pooled MiB": faults_each(100, fill_pooled),
        "page faults, fresh MiB": faults_each(100, fill_fresh),
    }


def producer_figures() -> dict[str, float]:
    first = parse_batch_header(build_batch([Record(value=b"x")] * 10, producer_id=1, producer_epoch=0, base_sequence=0))
    headers = [first._replace(base_sequence=10 * number) for number in range(50_000)]

    def append(count: int) -> None:
        state = ProducerStateManager()
        for number in range(count):
            plan = state.check(headers[number])
            assert isinstance(plan, AppendPlan)
            state.apply(plan, 10 * number)

    return {"check and apply a producer's batch, ns": best_ns(50_000, append)}


def compaction_figures() -> dict[str, float]:
    keys = [b"key-%d" % number for number in range(500_000)]
    batches = [
        build_batch(
            [Record(key=keys[number % 25_000], value=b"x" * 100, timestamp_ms=1) for number in range(base, base + 100)],
            base_offset=base,
        )
        for base in range(0, 100_000, 100)
    ]
    headers = [parse_batch_header(batch) for batch in batches]
    offset_map = OffsetMap(32 * MIB)

    def put(count: int) -> None:
        offset_map.clear()
        for number in range(count):
            offset_map.put(keys[number], number)

    def index(_: int) -> None:
        offset_map.clear()
        transactions = CleanedTransactions()
        for batch, header in zip(batches, headers, strict=True):
            index_batch(offset_map, transactions, batch, 0, header, 0)

    def clean(_: int) -> None:
        cleaner = BatchFilter(
            offset_map, CleanedTransactions(), {}, high_watermark=1 << 40, now_ms=0, delete_retention_ms=0
        )
        for batch, header in zip(batches, headers, strict=True):
            cleaner.clean(batch, 0, header)

    return {
        "put a key, ns": best_ns(len(keys), put),
        "note a record's key, ns": best_ns(100_000, index),
        "decide on a record, ns": best_ns(100_000, clean),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    arguments = parser.parse_args()
    figures = pool_figures() | producer_figures() | compaction_figures()
    if arguments.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:45}{value:12,.1f}")


if __name__ == "__main__":
    main()
