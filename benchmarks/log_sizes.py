"""How the cost of a log grows with its size: a start, memory, retention, a fetch and ListOffsets.

    python -m benchmarks.log_sizes [--only bytes segments sparse] [--most 100] [--page]

One topic of one partition, with batches of fifty records of 1 KB. In `bytes` segments are as large as they are by
default, 1 GiB, and the log is 1 MB to 10 GB: it takes that much of the disk. In `segments` each has one batch, and
there are up to 1,000 of them: as many as a log of 1 TB has by default. The broker is stopped in order, started again,
and asked by one connection, 1,000 times at random: for one batch at some offset, and for the offset at some timestamp.
Retention comes every second, and finds nothing to do; what it takes is in the CPU of an idle broker, whose scrubber is
off. CPU is of the whole process.

In `sparse` the log has 10 and 100 GB in segments of 1 GiB, and takes a hundredth of that: of each batch, here of 1,000
records, only the beginning is written, except of one in a hundred, and only these are asked for. First comes one
request by time and a fetch of what it has found, with nothing of the log in the page cache.

Figures are kept in `benchmarks/results/log_sizes.json`; `--page` writes the table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.growth import (
    PAGE,
    PRODUCE_VERSION,
    TIMEOUT_S,
    Figures,
    Stage,
    check_code,
    produce_request,
    produced_code,
    with_cached_bytecode,
)
from benchmarks.measuring.process_cost import cost
from benchmarks.measuring.sparse_log import RECORDS_OF_SPARSE_BATCH, WHOLE, forget_cached, write_sparse
from benchmarks.reporting.pages import put_between_marks
from compat_tests.brokers.ottla_broker import OttlaBroker
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Record, build_batch

RESULTS: Final = Path("benchmarks/results/log_sizes.json")
_MARK: Final = "log sizes"

_RECORDS_OF_BATCH: Final = 50
_VALUE: Final = bytes(range(250)) * 4
_FIRST_MS: Final = 1_700_000_000_000
_SMALL_SEGMENT_BYTES: Final = 65_536
_ASKED: Final = 1_000
_SETTLE_S: Final = 2.0
_WINDOW_S: Final = 6.0
_WINDOWS: Final = 30
_SETTINGS: Final = {
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.ms": "-1",
    # It reads each closed file once a week, at its own pace.
    "ottla.scrub.bytes.per.second": "0",
}
# The last in which a topic has its name.
_FETCH_VERSION: Final = 12


def _bytes(count: int) -> tuple[dict[str, str], int]:
    """The settings of a topic, and how many batches it is to have: so many MB."""
    return {}, count * 1_000_000 // (_RECORDS_OF_BATCH * len(_VALUE))


def _segments(count: int) -> tuple[dict[str, str], int]:
    """One batch of 50 KB fits into each, and only one at a time may be under way, or they would share a block."""
    return {"internal.segment.bytes": str(_SMALL_SEGMENT_BYTES)}, count


def _sparse(count: int) -> tuple[dict[str, str], int]:
    """So many GB, which are written without the broker."""
    return {}, count * 1_000_000_000 // (RECORDS_OF_SPARSE_BATCH * len(_VALUE))


DIMENSIONS: Final[Mapping[str, tuple[Callable[[int], tuple[dict[str, str], int]], Sequence[int], str]]] = {
    "bytes": (_bytes, (1, 10, 100, 1_000, 10_000), "MB"),
    "segments": (_segments, (1, 10, 100, 1_000), "segments"),
    "sparse": (_sparse, (10, 100), "GB, sparse"),
}


def fill(stage: Stage, configs: Mapping[str, str], batches: int) -> None:
    """Write the log: timestamps rise by a second for each batch."""
    made = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=made)
    response = stage.connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_S * 1000)))
    check_code(response.topics[0].error_code)

    def requests() -> Iterator[Any]:
        for number in range(batches):
            record = Record(timestamp_ms=_FIRST_MS + 1000 * number, key=None, value=_VALUE)
            yield produce_request(build_batch([record] * _RECORDS_OF_BATCH))

    if configs:
        for request in requests():
            check_code(produced_code(stage.connection.call(request, at_most=PRODUCE_VERSION)))
    else:
        stage.pipelined(requests(), produced_code, PRODUCE_VERSION)


def fetch(stage: Stage, number: int, records: int = _RECORDS_OF_BATCH) -> None:
    """Read the batch of this number, where each has so many records."""
    offset = number * records
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition])])
    answer = stage.connection.call(request, at_most=_FETCH_VERSION).responses[0].partitions[0]
    check_code(answer.error_code)
    if len(answer.records or b"") < len(_VALUE) * records:
        raise RuntimeError(f"no batch at offset {offset}")


def find(stage: Stage, number: int, records: int = _RECORDS_OF_BATCH) -> None:
    """Ask for the first offset of the batch of this number by its timestamp."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=_FIRST_MS + 1000 * number)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    answer = stage.connection.call(request).topics[0].partitions[0]
    check_code(answer.error_code)
    if answer.offset != number * records:
        raise RuntimeError(f"offset {answer.offset} for batch {number}")


def asked(stage: Stage, numbers: Sequence[int], ask: Callable[[Stage, int], None]) -> float:
    """The CPU of one request for one of these batches in µs, after each index was loaded once."""
    chance = random.Random(7)
    for number in numbers[:: max(1, len(numbers) // 1000)]:
        ask(stage, number)
    before = cost(stage.broker.pid).cpu_s
    for _ in range(_ASKED):
        ask(stage, chance.choice(numbers))
    return (cost(stage.broker.pid).cpu_s - before) / _ASKED * 1e6


def at_rest(pid: int, folder: Path) -> float:
    """The CPU of an idle second in ms, once no file is rewritten any more, as each segment of small runs is once."""
    for _ in range(_WINDOWS):
        before, began_s = _files(folder), cost(pid).cpu_s
        time.sleep(_WINDOW_S)
        idle_ms = (cost(pid).cpu_s - began_s) / _WINDOW_S * 1e3
        if _files(folder) == before:
            return idle_ms
    raise TimeoutError("the broker does not come to rest")


def _files(folder: Path) -> set[Path]:
    return set(folder.rglob("*.data"))


def measure_sparse(count: int) -> Figures:
    """One sparse log of so many GB."""
    _, batches = _sparse(count)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        broker = OttlaBroker(Path(folder), overrides=_SETTINGS)
        with broker:
            stage = Stage(broker, ExitStack())
            stage.topics(["t"])
            topic = stage.connection.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")])).topics[0]
            stage.connection.close()
            broker.stop()
            write_sparse(Path(folder) / "data", topic.topic_id, batches, _VALUE, _FIRST_MS)
            forget_cached(Path(folder))
            began = time.perf_counter()
            broker.start()
            started_s = time.perf_counter() - began
            started = cost(broker.pid)
            stage = Stage(broker, ExitStack())
            numbers = range(0, batches, WHOLE)
            began = time.perf_counter()
            find(stage, numbers[len(numbers) // 2], RECORDS_OF_SPARSE_BATCH)
            fetch(stage, numbers[len(numbers) // 2], RECORDS_OF_SPARSE_BATCH)
            first_ms = (time.perf_counter() - began) * 1000
            fetched_us = asked(stage, numbers, partial(fetch, records=RECORDS_OF_SPARSE_BATCH))
            found_us = asked(stage, numbers, partial(find, records=RECORDS_OF_SPARSE_BATCH))
            stage.connection.close()
            idle_ms = at_rest(broker.pid, Path(folder))
            resident_mb = cost(broker.pid).resident_mb
            files = len(_files(Path(folder)))
    return {
        "start_s": started_s,
        "start_cpu_s": started.cpu_s,
        "started_mb": started.resident_mb,
        "resident_mb": resident_mb,
        "first_ms": first_ms,
        "fetch_us": fetched_us,
        "list_offsets_us": found_us,
        "idle_ms_per_s": idle_ms,
        "data_files": files,
    }


def measure(dimension: str, count: int) -> Figures:
    """One log of a size."""
    if dimension == "sparse":
        return measure_sparse(count)
    configs, batches = DIMENSIONS[dimension][0](count)
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        broker = OttlaBroker(Path(folder), overrides=_SETTINGS)
        with broker:
            stage = Stage(broker, ExitStack())
            fill(stage, configs, batches)
            stage.connection.close()
            broker.stop()
            began = time.perf_counter()
            broker.start()
            started_s = time.perf_counter() - began
            started = cost(broker.pid)
            stage = Stage(broker, ExitStack())
            time.sleep(_SETTLE_S)
            numbers: Sequence[int] = range(batches)
            fetched_us, found_us = asked(stage, numbers, fetch), asked(stage, numbers, find)
            stage.connection.close()
            idle_ms = at_rest(broker.pid, Path(folder))
            resident_mb = cost(broker.pid).resident_mb
            files = len(_files(Path(folder)))
    return {
        "start_s": started_s,
        "start_cpu_s": started.cpu_s,
        "started_mb": started.resident_mb,
        "resident_mb": resident_mb,
        "fetch_us": fetched_us,
        "list_offsets_us": found_us,
        "idle_ms_per_s": idle_ms,
        "data_files": files,
    }


def table(results: Mapping[str, Mapping[str, Figures]]) -> str:
    lines = [
        "| log | data files | CPU of a start, s | resident, MB; after the start | first fetch by time, ms "
        "| CPU of a fetch, µs | CPU of ListOffsets by time, µs | CPU of an idle second with retention, ms |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for dimension, (_, _, unit) in DIMENSIONS.items():
        for count, each in sorted(results.get(dimension, {}).items(), key=lambda item: int(item[0])):
            lines.append(
                f"| {int(count):,} {unit} | {each['data_files']:,.0f} | {each['start_cpu_s']:.2f} "
                f"| {each['resident_mb']:.0f}; {each['started_mb']:.0f} "
                f"| {format(each['first_ms'], '.0f') if 'first_ms' in each else ''} | {each['fetch_us']:.0f} "
                f"| {each['list_offsets_us']:.0f} | {each['idle_ms_per_s']:.1f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(DIMENSIONS), default=list(DIMENSIONS))
    parser.add_argument("--most", type=int, default=1_000_000_000, help="leave out larger numbers")
    parser.add_argument("--page", action="store_true", help="measure nothing, only write the table")
    options = parser.parse_args()
    results: dict[str, dict[str, Figures]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.page:
        put_between_marks(PAGE, _MARK, table(results))
        return
    with_cached_bytecode()
    for dimension in options.only:
        for count in (count for count in DIMENSIONS[dimension][1] if count <= options.most):
            figures = measure(dimension, count)
            shown = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
            print(f"{count} {DIMENSIONS[dimension][2]}: {shown}", flush=True)
            results.setdefault(dimension, {})[str(count)] = figures
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
