"""How the cost of a node grows: memory, CPU and the time of a start over the number of things that it has.

    python -m benchmarks.growth [--broker ottla] [--only topics connections …] [--most 20000] [--page]

Each dimension has one thing in growing numbers and nothing else: topics of one partition, topics of one partition with
a record, partitions of one topic, connections that say nothing, connections that each send twenty requests, groups with
one committed offset, idempotent producers of one partition, records of 1 KB. For each number the broker begins on a new
folder. CPU is of the whole process. What is made is counted from when it is asked for until it is answered; then the
broker is idle until the cleaner must have come once, is stopped in order, and is started again, until it answers and
until all its logs are open. Figures are kept in
`benchmarks/results/growth.json`, one for each broker, dimension and number; `--page` draws `docs/images/growth.svg`
from them and writes the table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.echoes import exchange
from benchmarks.measuring.brokers import BROKERS, fresh
from benchmarks.measuring.process_cost import cost
from benchmarks.reporting.pages import put_between_marks
from benchmarks.workloads.requests import frame, list_offsets
from compat_tests.brokers.process import BrokerProcess
from ottla.client.connection import BrokerConnection
from ottla.kproto.messages.data.describe_log_dirs import DescribeLogDirsRequest
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.records import Record, build_batch
from ottla.storage.config import StorageConfig

RESULTS: Final = Path("benchmarks/results/growth.json")
PICTURE: Final = Path("docs/images/growth.svg")
PAGE: Final = Path("docs/performance.md")

# One pass of the cleaner comes in it, and what else recurs comes as often: else whether it did would be luck.
_IDLE_S: Final = StorageConfig().cleaner_backoff_ms / 1000
# For fewer, what each of them takes is less than what a broker's memory and CPU vary by.
_COUNTS_FROM: Final = 1_000
_SETTLE_S: Final = 1.0
TIMEOUT_S: Final = 300.0
_TOPICS_AT_ONCE: Final = 500
_TOPICS_OF_REQUEST: Final = 50
_PARTITIONS_AT_ONCE: Final = 2_000
_PARTITIONS_OF_TOPIC: Final = 10_000
_AHEAD: Final = 100
_VALUE: Final = bytes(range(250)) * 4
_RECORDS_AT_ONCE: Final = 500
# Up to fifty may wait to be accepted (`socket.listen.backlog.size`); the next one is tried again after a second.
_CONNECTED_AT_ONCE: Final = 20
_ACCEPTED_WITHIN_S: Final = 0.01
_REQUESTS_OF_CONNECTION: Final = 20
# The last in which topics have names.
_COMMIT_VERSION: Final = 9
PRODUCE_VERSION: Final = 12

Figures = dict[str, float]
Results = dict[str, dict[str, dict[str, Figures]]]
"""By broker, dimension and number."""


class Stage:
    """A broker, and one connection to it that makes things."""

    def __init__(self, broker: BrokerProcess, stack: ExitStack) -> None:
        self.broker = broker
        self.stack = stack
        self.connection = self.connect()

    def connect(self) -> BrokerConnection:
        host, _, port = self.broker.bootstrap.rpartition(":")
        return BrokerConnection(host, int(port), TIMEOUT_S)

    def topics(self, names: Sequence[str], partitions: int = 1) -> None:
        topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
        response = self.connection.call(CreateTopicsRequest(topics=topics, timeout_ms=int(TIMEOUT_S * 1000)))
        refused = [topic.error_code for topic in response.topics if topic.error_code]
        if refused:
            raise RuntimeError(f"topics were refused with {set(refused)}")

    def pipelined(self, requests: Iterator[Any], code_of: Callable[[Any], int], at_most: int) -> None:
        """Send requests of a version, a hundred ahead of their answers, none of which may be an error."""
        waiting = 0
        for request in requests:
            self.connection.send(request, at_most=at_most)
            waiting += 1
            if waiting == _AHEAD:
                check_code(code_of(self.connection.receive()))
                waiting -= 1
        for _ in range(waiting):
            check_code(code_of(self.connection.receive()))


def check_code(code: int) -> None:
    """What an answer says was done: RuntimeError if it was not."""
    if code:
        raise RuntimeError(f"a request was refused with {code}")


# What grows -----------------------------------------------------------------------------------------------------------


def topics(stage: Stage, count: int) -> None:
    for first in range(0, count, _TOPICS_AT_ONCE):
        stage.topics([f"t{number}" for number in range(first, min(count, first + _TOPICS_AT_ONCE))])


def filled(stage: Stage, count: int) -> None:
    """Topics with a record each: only these have files."""
    topics(stage, count)

    def batches() -> Iterator[ProduceRequest]:
        for first in range(0, count, _TOPICS_OF_REQUEST):
            names = [f"t{number}" for number in range(first, min(count, first + _TOPICS_OF_REQUEST))]
            yield produce_request(build_batch([Record(timestamp_ms=_now_ms(), key=None, value=b"x")]), *names)

    stage.pipelined(batches(), produced_code, PRODUCE_VERSION)


def partitions(stage: Stage, count: int) -> None:
    for first in range(0, count, _PARTITIONS_OF_TOPIC):
        name, wanted = f"t{first}", min(count - first, _PARTITIONS_OF_TOPIC)
        stage.topics([name], min(wanted, _PARTITIONS_AT_ONCE))
        for grown in range(2 * _PARTITIONS_AT_ONCE, wanted + _PARTITIONS_AT_ONCE, _PARTITIONS_AT_ONCE):
            topic = CreatePartitionsTopic(name=name, count=min(wanted, grown), assignments=None)
            request = CreatePartitionsRequest(topics=[topic], timeout_ms=int(TIMEOUT_S * 1000))
            check_code(stage.connection.call(request).results[0].error_code)


def connections(stage: Stage, count: int) -> None:
    _connect(stage, count)


def _connect(stage: Stage, count: int) -> list[socket.socket]:
    host, _, port = stage.broker.bootstrap.rpartition(":")
    connected = []
    for number in range(count):
        connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        connected.append(stage.stack.enter_context(connection))
        if number % _CONNECTED_AT_ONCE == 0:
            time.sleep(_ACCEPTED_WITHIN_S)
    return connected


def busy(stage: Stage, count: int) -> None:
    """All send at the same time, and send again when all are answered."""
    stage.topics(["t"])
    pairs = [(connection, frame(*list_offsets("t", 0))) for connection in _connect(stage, count)]
    for _ in range(_REQUESTS_OF_CONNECTION):
        exchange(pairs)


def groups(stage: Stage, count: int) -> None:
    stage.topics(["t"])
    deadline = time.monotonic() + TIMEOUT_S
    while stage.connection.call(FindCoordinatorRequest(coordinator_keys=["g0"])).coordinators[0].error_code:
        if time.monotonic() > deadline:
            raise TimeoutError("there is no coordinator")
        time.sleep(0.1)
    time.sleep(_SETTLE_S)  # its partitions are loaded one after the other
    partition = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    topic = [OffsetCommitRequestTopic(name="t", partitions=partition)]
    commits = (OffsetCommitRequest(group_id=f"g{number}", topics=topic) for number in range(count))
    stage.pipelined(commits, lambda answer: int(answer.topics[0].partitions[0].error_code), _COMMIT_VERSION)


def producers(stage: Stage, count: int) -> None:
    stage.topics(["t"])

    def batches() -> Iterator[ProduceRequest]:
        for number in range(count):
            records = [Record(timestamp_ms=_now_ms(), key=None, value=b"x")]
            yield produce_request(
                build_batch(records, producer_id=1_000_000 + number, producer_epoch=0, base_sequence=0)
            )

    stage.pipelined(batches(), produced_code, PRODUCE_VERSION)


def records(stage: Stage, count: int) -> None:
    stage.topics(["t"])

    def batches() -> Iterator[ProduceRequest]:
        for first in range(0, count, _RECORDS_AT_ONCE):
            some = min(_RECORDS_AT_ONCE, count - first)
            yield produce_request(build_batch([Record(timestamp_ms=_now_ms(), key=None, value=_VALUE)] * some))

    stage.pipelined(batches(), produced_code, PRODUCE_VERSION)


def produce_request(batch: bytes, *topics: str) -> ProduceRequest:
    """A batch for the first partition of each topic, or of the one that is called `t`."""
    partition = [PartitionProduceData(index=0, records=batch)]
    data = [TopicProduceData(name=name, partition_data=partition) for name in topics or ("t",)]
    return ProduceRequest(acks=-1, timeout_ms=int(TIMEOUT_S * 1000), topic_data=data)


def produced_code(answer: Any) -> int:
    """The first error of an answer to that, 0 if there is none."""
    codes = (int(topic.partition_responses[0].error_code) for topic in answer.responses)
    return next(filter(None, codes), 0)


def _now_ms() -> int:
    return int(time.time() * 1000)


DIMENSIONS: Final[Mapping[str, tuple[Callable[[Stage, int], None], Sequence[int]]]] = {
    "topics": (topics, (1, 10, 100, 1_000, 5_000, 20_000)),
    "filled topics": (filled, (100, 1_000, 5_000, 20_000)),
    "partitions": (partitions, (1, 10, 100, 1_000, 10_000, 100_000)),
    "connections": (connections, (1, 10, 100, 1_000, 10_000)),
    "busy": (busy, (1, 10, 100, 1_000, 2_000)),
    "groups": (groups, (1, 10, 100, 1_000, 10_000)),
    "producers": (producers, (1, 10, 100, 1_000, 10_000, 50_000)),
    "records": (records, (1_000, 10_000, 100_000, 1_000_000, 5_000_000)),
}


# Measuring ------------------------------------------------------------------------------------------------------------


def measure(kind: str, dimension: str, count: int) -> Figures:
    """One broker with so many: CPU in seconds, memory in MB, the start in seconds."""
    make, _ = DIMENSIONS[dimension]
    with fresh(kind) as broker:
        with ExitStack() as stack:
            stage = Stage(broker, stack)
            stage.connection.call(MetadataRequest(topics=[]))
            time.sleep(_SETTLE_S)
            before = cost(broker.pid)
            began = time.perf_counter()
            make(stage, count)
            made_s = time.perf_counter() - began
            time.sleep(_SETTLE_S)
            made = cost(broker.pid)
            time.sleep(_IDLE_S)
            idle = cost(broker.pid)
            stage.connection.close()
        began = time.perf_counter()
        broker.stop()
        stopped_s = time.perf_counter() - began
        began = time.perf_counter()
        broker.start()
        started_s = time.perf_counter() - began
        started = cost(broker.pid)
        with ExitStack() as stack:
            # What a start has left for later is open when this is answered.
            Stage(broker, stack).connection.call(DescribeLogDirsRequest(topics=[]))
        opened_s = time.perf_counter() - began
        opened = cost(broker.pid)
    return {
        "make_s": made_s,
        "make_cpu_s": made.cpu_s - before.cpu_s,
        "resident_mb": idle.resident_mb,
        "grown_mb": idle.resident_mb - before.resident_mb,
        "idle_cpu_percent": (idle.cpu_s - made.cpu_s) / _IDLE_S * 100,
        "stop_s": stopped_s,
        "start_s": started_s,
        "start_cpu_s": started.cpu_s,
        "started_mb": started.resident_mb,
        "opened_s": opened_s,
        "opened_cpu_s": opened.cpu_s,
        "open_files": idle.open_files,
    }


def draw(results: Results, path: Path = PICTURE) -> None:
    """Memory, the CPU of making, and the CPU of a start, over the number of each thing, both axes logarithmic."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = {
        "resident_mb": "resident memory, MB",
        "make_cpu_s": "CPU to make them, s",
        "start_cpu_s": "CPU of a start with them, s",
    }
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for place, (name, title) in enumerate(panels.items(), 1):
        panel = figure.add_subplot(1, len(panels), place)
        for dimension, by_count in results.get("ottla", {}).items():
            points = sorted((int(count), figures[name]) for count, figures in by_count.items())
            panel.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1.2, label=dimension)
        panel.set(xscale="log", yscale="log", xlabel="how many", title=title)
        panel.spines[["top", "right"]].set_visible(False)
        if place == 1:
            panel.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": path.stem}):  # the same figures give the same file
        figure.savefig(path, metadata={"Date": None})


def table(results: Results) -> str:
    """What so many of each thing take of Ottla, and some of that of Apache Kafka, as a table in Markdown."""
    lines = [
        "| | how many | resident, MB | KB each | CPU each, µs | idle, % of a core | CPU of a start, s "
        "| … until all is open | stop, s | open files | Kafka: resident, MB | KB each | CPU each, µs "
        "| idle, % of a core | CPU of a start, s | open files |",
        "|---" + "|---:" * 15 + "|",
    ]
    kafka = results.get("kafka", {})
    for dimension in DIMENSIONS:
        for count, figures in sorted(
            results.get("ottla", {}).get(dimension, {}).items(), key=lambda item: int(item[0])
        ):
            number = int(count)
            opened = (
                [f"{figures['opened_cpu_s']:.2f}", f"{figures['stop_s']:.1f}"]
                if "opened_cpu_s" in figures
                else ["", ""]
            )
            before, files = _common_cells(figures, number)
            theirs = kafka.get(dimension, {}).get(count)
            beside = [""] * 6 if theirs is None else [cell for cells in _common_cells(theirs, number) for cell in cells]
            lines.append(f"| {dimension} | {number:,} | " + " | ".join([*before, *opened, *files, *beside]) + " |")
    return "\n".join(lines)


def _common_cells(figures: Figures, number: int) -> tuple[list[str], list[str]]:
    """What is shown of both brokers: the cells before those that only one of them has, and those after."""
    before = [
        f"{figures['resident_mb']:.0f}",
        f"{figures['grown_mb'] / number * 1000:.2f}" if number >= _COUNTS_FROM else "",
        f"{figures['make_cpu_s'] / number * 1e6:.0f}" if number >= _COUNTS_FROM else "",
        f"{figures['idle_cpu_percent']:.1f}",
        f"{figures['start_cpu_s']:.2f}",
    ]
    return before, [f"{figures['open_files']:.0f}"]


def write_page(results: Results) -> None:
    """Put the table into the page, and draw the picture."""
    put_between_marks(PAGE, "growth", table(results))
    draw(results)


def with_cached_bytecode() -> None:
    """Let the brokers that are started keep their bytecode, as if installed: compiling it takes half a second."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def read_results() -> Results:
    results: Results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--broker", choices=sorted(BROKERS), default="ottla")
    parser.add_argument("--only", nargs="+", choices=sorted(DIMENSIONS), default=list(DIMENSIONS))
    parser.add_argument("--most", type=int, default=1_000_000_000, help="leave out larger numbers")
    parser.add_argument("--least", type=int, default=0, help="leave out smaller numbers")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, only write the table and draw the picture"
    )
    options = parser.parse_args()
    results = read_results()
    if options.page:
        write_page(results)
        return
    with_cached_bytecode()
    for dimension in options.only:
        for count in DIMENSIONS[dimension][1]:
            if not options.least <= count <= options.most:
                continue
            figures = measure(options.broker, dimension, count)
            shown = ", ".join(f"{name} {value:.3g}" for name, value in figures.items())
            print(f"{options.broker}, {count} {dimension}: {shown}", flush=True)
            results.setdefault(options.broker, {}).setdefault(dimension, {})[str(count)] = figures
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
