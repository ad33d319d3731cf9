"""What single steps of the path of a record cost, away from sockets and disks.

    python -m benchmarks.steps.hot_path            # pyperf: calibrated, in worker processes; see --help, try --fast
    python -m benchmarks.steps.hot_path --quick    # a table in some seconds, less exact

The checksum of a batch, taking a batch into a memstore, looking up an offset or a timestamp in an index, assembling a
fetch from memory, reading a tail, sealing a block. All in CPU time. See also `benchmarks.steps.records` (requests,
batches) and `benchmarks.steps.codec` (messages).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.reporting.figures import shown
from benchmarks.steps.micro import Operation, best_us, by_pyperf
from ottla.kproto.hot import fetch
from ottla.kproto.hot.fetch import FetchedPartition
from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchResponse
from ottla.kproto.records import Record, build_batch, crc_matches, parse_batch_header
from ottla.storage.format.block import log_key
from ottla.storage.format.run_table import RunTable
from ottla.storage.memory.iobuf import Fragment, IOBuf
from ottla.storage.reading.plan import ReadPlan
from ottla.storage.store.memstore import Memstore, RunGroup

FETCH_VERSION = 12
RUN_BYTES = 1 << 20
RUNS = 10_000
BATCH_RECORDS = 16
LONE_BLOCKS = 1_000


def _batch() -> tuple[Any, memoryview]:
    view = memoryview(bytearray(build_batch([Record(value=b"v" * 1_000) for _ in range(BATCH_RECORDS)])))
    return parse_batch_header(view), view


class _Log:
    """What a memstore needs of a log."""

    def __init__(self, partition: int) -> None:
        self.key = log_key(bytes(16), partition)


def _log(partition: int) -> Any:
    return _Log(partition)


def _crc() -> Iterator[tuple[str, Operation]]:
    for size, records in (("1 KB", 1), ("16 KB", 16), ("256 KB", 256)):
        view = memoryview(bytearray(build_batch([Record(value=b"v" * 950) for _ in range(records)])))
        header = parse_batch_header(view)
        yield f"CRC: check that of a batch of {size}", partial(crc_matches, view, 0, header)


def _memstore() -> Iterator[tuple[str, Operation]]:
    header, view = _batch()
    fragment = Fragment(view)
    log = _log(0)

    def add() -> None:
        group = Memstore(None).group(log, RUN_BYTES)
        group.add(header, view, fragment, 0, header.last_offset, 0)

    yield "memstore: make one and take a batch", add
    logs = [_log(partition) for partition in range(1_000)]

    def seal() -> None:
        memstore = Memstore(None)
        for each in logs:
            memstore.group(each, RUN_BYTES).add(header, view, fragment, 0, header.last_offset, 0)
            memstore.size_bytes += view.nbytes
            memstore.batch_count += 1
        memstore.seal(0, 1, 0, memstore.block_bytes())

    yield "memstore: take a batch of each of 1,000 partitions and seal the block", seal


def _index() -> Iterator[tuple[str, Operation]]:
    table = RunTable()
    for number in range(RUNS):
        table.append(0, number * 100, number * 100 + 99, number * 10, number * 1_000, 1_000, 0)
    yield f"index: find an offset among {RUNS:,} runs", lambda: table.find_offset(654_321)
    yield f"index: find a timestamp among {RUNS:,} runs", lambda: table.find_timestamp(54_321)


def _fetch() -> Iterator[tuple[str, Operation]]:
    header, view = _batch()
    groups = []
    for partition in range(100):
        group = RunGroup(_log(partition), RUN_BYTES)
        for number in range(4):
            first = number * BATCH_RECORDS
            group.add(header, view, None, first, first + header.last_offset, 0)
        groups.append(group)

    def assemble(count: int) -> None:
        partitions: list[Any] = []
        for index, group in enumerate(groups[:count]):
            records = IOBuf()
            group.read(records, 0, 64, RUN_BYTES, min_one_batch=True)
            partitions.append(FetchedPartition(index, 0, 64, 64, 0, None, records))
        response = FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])
        fetch.build_parts(response, FETCH_VERSION)

    yield "fetch: assemble 4 batches of 1 partition", lambda: assemble(1)
    yield "fetch: assemble 4 batches of each of 100 partitions", lambda: assemble(100)


def _tail() -> Iterator[tuple[str, Operation]]:
    view = memoryview(bytearray(build_batch([Record(value=b"v" * 100)])))
    header = parse_batch_header(view)
    tail = []
    for number in range(LONE_BLOCKS):
        group = RunGroup(_log(0), RUN_BYTES)
        group.add(header, view, Fragment(view), number, number + header.last_offset, 0)
        tail.append(group)
    log = _log(0)
    log.aborted = None
    log.cleanings = 0

    def read() -> None:
        plan = ReadPlan(log, 0, RUN_BYTES, LONE_BLOCKS, min_one_batch=True)
        plan.read_tail(tail, 0)
        assert plan.records is not None
        plan.records.release()

    yield f"tail: read {LONE_BLOCKS:,} blocks of one batch of 100 B each, and give them back", read


def benchmarks() -> Iterator[tuple[str, Operation]]:
    """Every measured operation by what it does."""
    yield from _crc()
    yield from _memstore()
    yield from _index()
    yield from _fetch()
    yield from _tail()


def quick() -> None:
    """Print the microseconds of each operation, best of several short runs, as a table."""
    print("| | CPU, µs |\n|---|---:|")
    for what, operation in benchmarks():
        print(f"| {what} | {shown(best_us(operation))} |", flush=True)


def main() -> None:
    if "--quick" in sys.argv:
        quick()
        return
    by_pyperf("benchmarks.steps.hot_path", "Steps of the path of a record: CRC, memstore, index, fetch", benchmarks())


if __name__ == "__main__":
    main()
