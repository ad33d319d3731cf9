"""What the data path costs: record batches, Produce requests and Fetch responses, by the size of the batches.

    python -m benchmarks.steps.records            # pyperf: calibrated, in worker processes; see --help, try --fast
    python -m benchmarks.steps.records --quick    # a table in half a minute, less exact

Produce and Fetch go through what serves them here (`ottla.kproto.hot`), kio (whose parser is native code) and
kafka-python, with four partitions of one batch each. Batches are read and built beside kafka-python, whose code is
Python too, and aiokafka, whose code is native.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any, cast

from benchmarks.steps.micro import Operation, best_us, by_pyperf
from ottla.kproto import codec
from ottla.kproto.hot import fetch, produce
from ottla.kproto.hot.fetch import FetchedPartition
from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchResponse
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import (
    HEADER_SIZE_BYTES,
    Record,
    build_batch,
    crc_matches,
    iter_batches,
    iter_records,
    parse_batch_header,
    patch_base_offset_and_epoch,
    validate_produced_batch,
    walk_produced_records,
)

BATCH_SIZES = {"1 KiB": 1, "16 KiB": 16, "64 KiB": 64, "256 KiB": 256}
PRODUCE_VERSION = 9
FETCH_VERSION = 12


def _batch(kibibytes: int) -> bytes:
    records = [Record(timestamp_ms=1_700_000_000_000 + n, value=bytes(100)) for n in range(kibibytes * 1024 // 110)]
    return build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)


def _produce(size: str, batch: bytes) -> Iterator[tuple[str, str, Operation]]:
    from kafka.protocol.producer import ProduceRequest as KafkaPythonRequest
    from kio.schema.produce.v9.request import ProduceRequest as KioRequest
    from kio.serial import entity_reader

    partitions = [PartitionProduceData(index=index, records=batch) for index in range(4)]
    topic = TopicProduceData(name="orders", partition_data=partitions)
    raw = codec.build(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), PRODUCE_VERSION)
    frame = memoryview(bytearray(raw))
    read = entity_reader(KioRequest)
    what = f"parse a Produce request of 4 x {size}"
    yield what, "ottla", lambda: produce.parse_request(PRODUCE_VERSION, frame)
    yield what, "kio", lambda: read(raw, 0)
    yield what, "kafka-python", lambda: KafkaPythonRequest.decode(raw, version=PRODUCE_VERSION)


def _fetch(size: str, batch: bytes) -> Iterator[tuple[str, str, Operation]]:
    from kafka.protocol.consumer import FetchResponse as KafkaPythonResponse
    from kio.schema.fetch.v12.response import FetchResponse as KioResponse
    from kio.serial import entity_reader, entity_writer

    partitions: list[Any] = [FetchedPartition(index, 0, 900, 900, 0, None, memoryview(batch)) for index in range(4)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])
    raw = b"".join(cast("list[bytes]", fetch.build_parts(response, FETCH_VERSION)))
    write = entity_writer(KioResponse)
    kio_response, _ = entity_reader(KioResponse)(raw, 0)
    kafka_python_response: Any = KafkaPythonResponse.decode(raw, version=FETCH_VERSION)
    kafka_python_response._header = None  # what decode without a header leaves out, encode asks for

    def build_by_kio() -> bytes:
        buffer = io.BytesIO()
        write(buffer, kio_response)
        return buffer.getvalue()

    assert build_by_kio() == raw == bytes(kafka_python_response.encode(version=FETCH_VERSION))
    what = f"build a Fetch response of 4 x {size}"
    yield what, "ottla", lambda: fetch.build_parts(response, FETCH_VERSION)
    yield what, "kio", build_by_kio
    yield what, "kafka-python", lambda: kafka_python_response.encode(version=FETCH_VERSION)


def _batches(batch: bytes) -> Iterator[tuple[str, str, Operation]]:
    from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

    sequence = memoryview(bytearray(batch * 64))
    one = memoryview(bytearray(batch))
    header = parse_batch_header(one)
    records = list(iter_records(one))

    def take_in() -> None:
        taken = parse_batch_header(one)
        validate_produced_batch(taken)
        assert crc_matches(one, 0, taken)
        patch_base_offset_and_epoch(one, 0, 5, 1)

    yield "walk 64 batches of 16 KiB", "ottla", lambda: [None for _ in iter_batches(sequence)]
    yield "CRC of 16 KiB", "ottla", lambda: crc_matches(one, 0, header)
    yield "take in a batch of 16 KiB: check, CRC, patch", "ottla", take_in
    read = f"read {len(records)} records"
    yield read, "ottla", lambda: [None for _ in iter_records(one, 0, header)]
    yield read, "kafka-python", lambda: [None for _ in KafkaPythonBatch(batch)]
    yield read, "aiokafka", lambda: [None for _ in AiokafkaBatch(batch)]
    look = f"look at {len(records)} records, as `ottla.records.validate=all` does"
    yield look, "ottla", lambda: [None for _ in walk_produced_records(batch[HEADER_SIZE_BYTES:], header)]
    yield f"build a batch of {len(records)} records", "ottla", lambda: build_batch(records)


def benchmarks() -> Iterator[tuple[str, str, Operation]]:
    """Every measured operation as (what, whose, how)."""
    for size, kibibytes in BATCH_SIZES.items():
        batch = _batch(kibibytes)
        yield from _produce(size, batch)
        yield from _fetch(size, batch)
    yield from _batches(_batch(16))


def quick() -> None:
    """Print microseconds for each operation, best of several short runs, and how many times ours the others take."""
    table: dict[str, dict[str, float]] = {}
    for what, whose, operation in benchmarks():
        table.setdefault(what, {})[whose] = best_us(operation)
    for what, times in table.items():
        ours = times.pop("ottla")
        others = "".join(f"{whose:>15}{time:>9.2f} ({time / ours:4.1f}x)" for whose, time in times.items())
        print(f"{what:46}{ours:>9.2f}{others}")


def main() -> None:
    if "--quick" in sys.argv:
        quick()
        return
    operations = ((f"{what}: {whose}", operation) for what, whose, operation in benchmarks())
    by_pyperf(
        "benchmarks.steps.records", "Record batches, Produce and Fetch: ottla.kproto beside other libraries", operations
    )


if __name__ == "__main__":
    main()
