"""Record batches: Java's are read here, ours by Java, and uncompressed ones are the same bytes."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

import pytest

from ottla.kproto.records import (
    BatchHeader,
    Compression,
    EndTxnMarker,
    Record,
    build_batch,
    build_end_txn_marker,
    iter_batches,
    iter_records,
    parse_batch_header,
    parse_end_txn_marker,
    patch_base_offset_and_epoch,
    patch_log_append_time,
    rebuild_batch,
    validate_batch,
    validate_produced_batch,
    verify_crc,
)

pytestmark = pytest.mark.java

BATCHES_PER_CODEC = 20
LEVELS: dict[Compression, list[int | None]] = {
    Compression.NONE: [None],
    Compression.SNAPPY: [None],
    Compression.GZIP: [None, 1, 9],
    Compression.LZ4: [None, 1, 9, 17],
    Compression.ZSTD: [None, -5, 1, 19],
}


def base64_of(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def shown(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": base64_of(record.key),
        "value": base64_of(record.value),
        "headers": [[name, base64_of(value)] for name, value in record.headers],
    }


def shown_batch(header: BatchHeader, records: list[Record]) -> dict[str, Any]:
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "leader_epoch": header.leader_epoch,
        "crc": header.crc,
        "compression": header.compression.name,
        "timestamp_type": header.timestamp_type,
        "max_timestamp_ms": header.max_timestamp_ms,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "record_count": header.record_count,
        "delete_horizon_ms": header.delete_horizon_ms,
        "records": [shown(record) for record in records],
    }


def random_records(random: Random, base_offset: int) -> list[Record]:
    def content() -> bytes | None:
        size = random.choice((None, 0, 1, 63, 64, 127, 500, 9_000))
        return None if size is None else random.choice((random.randbytes(size), b"abcdefgh" * (size // 8)))

    start = random.randrange(2**41)
    return [
        Record(
            base_offset + index,
            start + random.choice((-5, 0, index, 700, 2**33)),
            content(),
            content(),
            tuple((random.choice(("", "h", "é€")), content()) for _ in range(random.choice((0, 0, 1, 3)))),
        )
        for index in range(random.choice((1, 2, 10, 100)))
    ]


def random_fields(random: Random) -> dict[str, Any]:
    has_producer = random.random() < 0.5
    return {
        "base_offset": random.choice((0, 1, 2**40)),
        "leader_epoch": random.choice((-1, 0, 7)),
        "producer_id": random.randrange(2**62) if has_producer else -1,
        "producer_epoch": random.randrange(2**15) if has_producer else -1,
        "base_sequence": random.choice((0, 5, 2**31 - 1)) if has_producer else -1,
        "is_transactional": has_producer and random.random() < 0.5,
    }


CASES = [(codec, level) for codec, levels in LEVELS.items() for level in levels]


@pytest.mark.parametrize(("codec", "level"), CASES)
def test_javas_batches_are_read_here(codec: Compression, level: int | None, oracle: Any) -> None:
    for number in range(BATCHES_PER_CODEC):
        random = Random(f"{codec} {level} {number}")
        fields = random_fields(random)
        records = random_records(random, fields["base_offset"])
        wanted = {"compression": codec.name, "level": level, "records": [shown(record) for record in records]}
        batch = oracle.build_batch(fields | wanted)
        ((pos, header),) = iter_batches(batch)
        verify_crc(batch, pos, header)
        validate_produced_batch(header)
        assert list(iter_records(batch, strict=True)) == records
        assert [shown_batch(header, records)] == oracle.read_batches(batch)
        if codec is Compression.NONE:
            assert build_batch(records, **fields) == batch


@pytest.mark.parametrize(("codec", "level"), CASES)
def test_our_batches_are_read_by_java(codec: Compression, level: int | None, oracle: Any) -> None:
    for number in range(BATCHES_PER_CODEC):
        random = Random(f"{codec} {level} {number}")
        fields = random_fields(random)
        records = random_records(random, fields["base_offset"])
        batch = build_batch(records, compression=codec, level=level, **fields)
        assert oracle.read_batches(batch) == [shown_batch(parse_batch_header(batch), records)]


@pytest.mark.parametrize("codec", Compression)
def test_patched_and_rebuilt_batches_are_read_by_java(codec: Compression, oracle: Any) -> None:
    random = Random(int(codec))
    records = random_records(random, 0)
    batch = bytearray(build_batch(records, compression=codec))
    patch_base_offset_and_epoch(batch, 0, 10, 3)
    patch_log_append_time(batch, 0, 12_345)
    stamped = list(iter_records(batch))
    assert {record.timestamp_ms for record in stamped} == {12_345}
    assert oracle.read_batches(bytes(batch)) == [shown_batch(parse_batch_header(batch), stamped)]

    original = build_batch(records, compression=codec, producer_id=4, producer_epoch=1, base_sequence=9)
    for kept in (records[::2], []):
        compacted = rebuild_batch(parse_batch_header(original), kept, delete_horizon_ms=2**40)
        header = parse_batch_header(compacted)
        validate_batch(header)
        assert oracle.read_batches(compacted) == [shown_batch(header, kept)]


def test_markers_are_the_same_bytes(oracle: Any) -> None:
    random = Random(1)
    for is_commit in (True, False):
        marker = EndTxnMarker(random.randrange(2**62), random.randrange(2**15), random.randrange(2**31), is_commit)
        place = {"base_offset": 33, "timestamp_ms": 1_700_000_000_000, "leader_epoch": 2}
        theirs = oracle.build_marker(marker._asdict() | place)
        assert parse_end_txn_marker(theirs) == marker
        assert build_end_txn_marker(marker, **place) == theirs


def test_java_refuses_what_we_damage(oracle: Any, oracle_error: type[Exception]) -> None:
    batch = bytearray(build_batch([Record(value=b"x")]))
    batch[-1] ^= 1
    with pytest.raises(oracle_error, match="corrupt"):
        oracle.read_batches(bytes(batch))
