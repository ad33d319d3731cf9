"""`ottla produce`: records from files or standard input, in the manner of kcat -P."""

from __future__ import annotations

import argparse
import io
import select
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple, cast

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.cli.records.schema_formats import Formats, add_formats, writers
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.partitioner import partition_for_key
from ottla.kproto.records import BatchBuilder, Compression

_BATCH_BYTES = 900_000
_BATCH_RECORDS = 10_000
_READ_BYTES = 1 << 16
_PAUSE_SECONDS = 0.05
_RETRIES = 10
_RETRY_SECONDS = 0.2
_CODECS = {codec.name.lower(): codec for codec in Compression}


class Line(NamedTuple):
    """One record to send."""

    key: bytes | None
    value: bytes | None


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("files", nargs="*", help="one record a line; standard input by default")
    parser.add_argument(
        "-p", "--partition", type=options.number, help="default: chosen by the key, or spread if there is no key"
    )
    parser.add_argument("-K", "--key-delimiter", metavar="TEXT", help="what stands between key and value")
    parser.add_argument(
        "-D", "--delimiter", default="\\n", metavar="TEXT", help="what separates records (default: newline)"
    )
    parser.add_argument("-k", "--key", help="one key for all records")
    parser.add_argument(
        "-H",
        "--header",
        type=options.name_and_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header for all records; may be repeated",
    )
    parser.add_argument(
        "-z",
        "--compression",
        choices=sorted(_CODECS),
        default="none",
        help="how batches are compressed (default: none)",
    )
    parser.add_argument("-Z", "--null", action="store_true", help="send empty keys and values as null")
    parser.add_argument("--whole-files", action="store_true", help="each file is one record")
    parser.add_argument(
        "-a",
        "--acks",
        choices=["1", "all"],
        default="all",
        help="the leader, or all replicas in sync, must have a record (default: all)",
    )
    add_formats(parser, writes=True)
    parser.add_argument("-c", "--count", type=options.count, help="stop after this many records")
    options.add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    progress = options.Progress("sent")
    with connected(arguments) as client:
        formats = writers(arguments, client)
        producer = _Producer(client, arguments, progress)
        added = 0
        try:
            for line in _lines(arguments):
                if line is None:
                    producer.flush()
                    continue
                producer.add(_encoded(line, formats, added))
                added += 1
                if added == arguments.count:
                    break
        except CommandError:
            # What came before a line that cannot be encoded is sent.
            producer.flush()
            raise
        producer.flush()
    progress.finish()
    return 0


def _encoded(line: Line, formats: Formats, number: int) -> Line:
    try:
        key = line.key if formats.key is None or line.key is None else formats.key(line.key)
        value = line.value if formats.value is None or line.value is None else formats.value(line.value)
    except CommandError as error:
        raise CommandError(f"record {number + 1}: {error}") from None
    return Line(key, value)


class _Producer:
    """Gathers records by partition, sends a batch when it is full, and waits for each acknowledgement."""

    def __init__(self, client: Client, arguments: argparse.Namespace, progress: options.Progress) -> None:
        self._client = client
        self._topic = client.topic(arguments.topic, create=True)
        self._partition_count = len(self._topic.partitions)
        if arguments.partition is not None and not 0 <= arguments.partition < self._partition_count:
            raise CommandError(f"topic {arguments.topic} has partitions 0 to {self._partition_count - 1}")
        self._partition = arguments.partition
        self._acks = -1 if arguments.acks == "all" else 1
        self._timeout_ms = int(arguments.timeout * 1000)
        self._compression = _CODECS[arguments.compression]
        self._headers = tuple((name, value.encode()) for name, value in arguments.header)
        self._progress = progress
        self._batches: dict[int, BatchBuilder] = {}
        self._turn = 0

    def add(self, line: Line) -> None:
        partition = self._choose(line)
        batch = self._batches.get(partition)
        if batch is None:
            batch = self._batches[partition] = BatchBuilder(compression=self._compression)
        batch.append(line.key, line.value, time.time_ns() // 1_000_000, self._headers)
        if batch.size_bytes >= _BATCH_BYTES or batch.record_count >= _BATCH_RECORDS:
            self._send(partition, self._batches.pop(partition))
            if line.key is None:
                self._turn += 1

    def flush(self) -> None:
        for partition, batch in self._batches.items():
            self._send(partition, batch)
        self._batches.clear()

    def _choose(self, line: Line) -> int:
        if self._partition is not None:
            return int(self._partition)
        if line.key is not None:
            return partition_for_key(line.key, self._partition_count)
        return self._turn % self._partition_count  # a full batch for one partition, then it is the next one's turn

    def _send(self, partition: int, batch: BatchBuilder) -> None:
        data = PartitionProduceData(index=partition, records=batch.build())
        topic = TopicProduceData(name=self._topic.name or "", topic_id=self._topic.topic_id, partition_data=[data])
        request = ProduceRequest(acks=self._acks, timeout_ms=self._timeout_ms, topic_data=[topic])
        for attempt in range(_RETRIES):
            response = self._client.broker(self._leader(partition)).call(request)
            (answer,) = response.responses[0].partition_responses
            if answer.error_code == ErrorCode.NONE:
                self._progress.add(batch.record_count, batch.size_bytes)
                return
            if not _is_retriable(answer.error_code) or attempt == _RETRIES - 1:
                break
            time.sleep(_RETRY_SECONDS)
            self._topic = self._client.topic(self._topic.name or "")
        raise BrokerError(answer.error_code, answer.error_message, what=f"{self._topic.name}-{partition}")

    def _leader(self, partition: int) -> int:
        for state in self._topic.partitions:
            if state.partition_index == partition:
                return int(state.leader_id)
        raise CommandError(f"topic {self._topic.name} has no partition {partition}")


def _is_retriable(code: int) -> bool:
    return ErrorCode.of(code).retriable


def _lines(arguments: argparse.Namespace) -> Iterator[Line | None]:
    """The records, with None where the input pauses: whatever has been gathered should be sent then."""
    delimiter = options.unescape(arguments.delimiter).encode()
    between = None if arguments.key_delimiter is None else options.unescape(arguments.key_delimiter).encode()
    fixed_key = None if arguments.key is None else arguments.key.encode()
    for text in _texts(arguments, delimiter):
        if text is None:
            yield None
            continue
        key: bytes | None = fixed_key
        value: bytes | None = text
        if between is not None and between in text:
            key, _, value = text.partition(between)
        if arguments.null:
            key, value = key or None, value or None
        yield Line(key, value)


def _texts(arguments: argparse.Namespace, delimiter: bytes) -> Iterator[bytes | None]:
    if not arguments.files:
        yield from _split(cast(io.BufferedReader, sys.stdin.buffer), delimiter)
        return
    for name in arguments.files:
        try:
            with open(name, "rb") as file:
                if arguments.whole_files:
                    yield file.read()
                else:
                    yield from _split(file, delimiter)
        except OSError as error:
            raise CommandError(f"cannot read {name}: {error.strerror}") from None


def _split(file: io.BufferedReader, delimiter: bytes) -> Iterator[bytes | None]:
    """The pieces between delimiters (the last one need not end with one); None when nothing more comes for now."""
    rest = b""
    while chunk := file.read1(_READ_BYTES):
        *whole, rest = (rest + chunk).split(delimiter)
        yield from whole
        if not select.select([file], [], [], _PAUSE_SECONDS)[0]:
            yield None
    if rest:
        yield rest
