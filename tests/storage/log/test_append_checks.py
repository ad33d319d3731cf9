"""What a batch must fulfil: by its header, and by its records where the topic's settings ask, within bounds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.kproto.records import (
    BatchHeader,
    Compression,
    EndTxnMarker,
    Record,
    assemble_batch,
    batch_payload,
    build_batch,
    build_end_txn_marker,
    compress,
    iter_records,
    parse_batch_header,
    verify_crc,
    walk_produced_records,
)
from ottla.kproto.records import TimestampType as BatchTimestampType
from ottla.kproto.records.record import encode_record
from ottla.storage.config import LogConfig, TimestampType
from ottla.storage.errors import ChecksTakeLongError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from ottla.storage.log import append_checks
from ottla.storage.log.append_checks import check_and_recompress, check_leader_batch, checks_records

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000

DEFAULTS = LogConfig()
WALKED = [
    pytest.param(LogConfig(validates_all_records=True), id="validate"),
    pytest.param(LogConfig(compact=True), id="compact"),
    pytest.param(LogConfig(compression_type="zstd"), id="compression.type"),
    pytest.param(LogConfig(message_timestamp_before_max_ms=HOUR_MS), id="before.max.ms"),
    pytest.param(LogConfig(max_decompressed_record_bytes=1_000_000), id="max.decompressed"),
]


def batch(*records: Record, **options: Any) -> memoryview:
    return memoryview(bytearray(build_batch(records or [Record(-1, NOW_MS, b"k", b"v")], **options)))


def batch_of(payload: bytes, count: int, codec: Compression = Compression.NONE, **header: int) -> memoryview:
    """A batch with a right CRC around any records."""
    like = parse_batch_header(build_batch([Record(timestamp_ms=NOW_MS)]))
    changed = like._replace(attributes=codec, record_count=count, last_offset_delta=count - 1, **header)
    return memoryview(bytearray(assemble_batch(changed, compress(codec, payload))))


def bomb(count: int, *, timestamp_delta_ms: int = 0, **header: int) -> memoryview:
    """Very many records of the right form in very few bytes."""
    payload = encode_record(0, timestamp_delta_ms, None, b"", ()) * count
    return batch_of(payload, count, Compression.ZSTD, **header)


def check(records: memoryview, config: LogConfig, *, from_client: bool = True) -> tuple[BatchHeader, memoryview]:
    """As a leader appends a batch, in another thread where that takes long."""
    try:
        header, changed = check_leader_batch(
            records, config, NOW_MS, from_client=from_client, checks_all=checks_records(config)
        )
    except ChecksTakeLongError:
        header, changed, _ = check_and_recompress(records, config, NOW_MS)
    return header, records if changed is None else changed


@pytest.fixture
def decompressed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limit of everything that is decompressed."""
    limits: list[int] = []

    def noted(records: memoryview, pos: int, header: BatchHeader, limit_bytes: int = 0) -> bytes:
        if header.attributes & 7:
            limits.append(limit_bytes)
        return batch_payload(records, pos, header, limit_bytes)

    monkeypatch.setattr(append_checks, "batch_payload", noted)
    return limits


@pytest.mark.parametrize("codec", list(Compression))
def test_far_timestamps_are_named(codec: Compression) -> None:
    times = (NOW_MS, NOW_MS + 2 * HOUR_MS, NOW_MS)
    with pytest.raises(InvalidTimestampError) as refused:
        check(batch(*(Record(timestamp_ms=time) for time in times), compression=codec), DEFAULTS)
    assert [index for index, _ in refused.value.refused] == [1]


def test_a_bomb_with_far_timestamps_is_not_opened_at_once(decompressed: list[int]) -> None:
    records = bomb(1_000_000, timestamp_delta_ms=2 * HOUR_MS, max_timestamp_ms=NOW_MS + 2 * HOUR_MS)
    with pytest.raises(ChecksTakeLongError):
        check_leader_batch(records, DEFAULTS, NOW_MS, from_client=True, checks_all=False)
    assert decompressed == [8_192]
    with pytest.raises(InvalidRecordError, match="record 1 "):
        check(records, DEFAULTS)


@pytest.mark.parametrize("config", WALKED)
def test_a_bomb_is_refused_at_its_second_record(config: LogConfig) -> None:
    records = bomb(1_000_000, timestamp_delta_ms=10 * HOUR_MS)
    assert len(records) < 2_000
    with pytest.raises((InvalidRecordError, InvalidTimestampError)) as refused:
        check(records, config)
    assert len(refused.value.refused) <= 100


def test_a_hundred_refused_records_end_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    walked = 0

    def counted(payload: bytes, header: BatchHeader, most_bytes: int) -> Any:
        nonlocal walked
        for found in walk_produced_records(payload, header, most_bytes):
            walked += 1
            yield found

    monkeypatch.setattr(append_checks, "walk_produced_records", counted)
    with pytest.raises(InvalidRecordError) as refused:
        check(batch(*[Record(timestamp_ms=NOW_MS)] * 5_000), LogConfig(compact=True))
    assert [index for index, _ in refused.value.refused] == list(range(100))
    assert walked == 100


@pytest.mark.parametrize("config", WALKED)
def test_records_may_inflate_to_a_multiple_of_what_the_topic_takes(config: LogConfig, decompressed: list[int]) -> None:
    limit_bytes = 200_000 * append_checks.INFLATION_FACTOR
    if config.max_decompressed_record_bytes < limit_bytes:
        config = config._replace(max_decompressed_record_bytes=limit_bytes)
    config = config._replace(max_message_bytes=200_000)
    check(batch(Record(-1, NOW_MS, b"k", bytes(limit_bytes - 100)), compression=Compression.GZIP), config)
    with pytest.raises(RecordTooLargeError):
        check(batch(Record(-1, NOW_MS, b"k", bytes(limit_bytes)), compression=Compression.GZIP), config)
    assert max(decompressed) == limit_bytes


def test_a_topic_of_small_batches_takes_what_inflates_to_a_mebibyte() -> None:
    config = LogConfig(max_message_bytes=1_000, validates_all_records=True)
    check(batch(Record(-1, NOW_MS, b"k", bytes(900_000)), compression=Compression.ZSTD), config)
    with pytest.raises(RecordTooLargeError):
        check(batch(Record(-1, NOW_MS, b"k", bytes(1_100_000)), compression=Compression.ZSTD), config)


def test_a_batch_has_no_more_records_than_the_topic_takes_bytes(decompressed: list[int]) -> None:
    config = LogConfig(max_message_bytes=100_000, validates_all_records=True)
    with pytest.raises(RecordTooLargeError, match="records"):
        check(bomb(100_001), config)
    assert decompressed == []


def test_what_the_topics_codec_makes_too_large_is_refused() -> None:
    """Kafka looks at `max.message.bytes` again when it has changed a batch."""
    config = LogConfig(compression_type="uncompressed", max_message_bytes=10_000)
    records = batch(Record(-1, NOW_MS, b"k", bytes(9_000)), compression=Compression.ZSTD)
    _, kept = check(records, config)
    assert 9_000 < len(kept) <= 10_000
    with pytest.raises(RecordTooLargeError):
        check(batch(Record(-1, NOW_MS, b"k", bytes(10_000)), compression=Compression.ZSTD), config)
    noise = batch(Record(-1, NOW_MS, b"k", random.Random(1).randbytes(5_000)))  # it grows a little under a codec
    with pytest.raises(RecordTooLargeError):
        check(noise, LogConfig(compression_type="snappy", max_message_bytes=len(noise)))


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("sent", list(Compression))
def test_a_change_of_codec_changes_nothing_else(codec: str, sent: Compression) -> None:
    content = [Record(-1, NOW_MS + n, b"k", b"v" * n, (("h", None),)) for n in range(9)]
    records = batch(*content, compression=sent, producer_id=5, producer_epoch=1, base_sequence=3, is_transactional=True)
    before = parse_batch_header(records)
    header, kept = check(records, LogConfig(compression_type=codec))
    assert header == parse_batch_header(kept)
    verify_crc(kept, 0, header)
    assert header.compression is (Compression.NONE if codec == "uncompressed" else Compression[codec.upper()])
    same = ("batch_length", "crc", "attributes")
    assert header._asdict() | dict.fromkeys(same) == before._asdict() | dict.fromkeys(same)
    assert header.attributes & ~7 == before.attributes & ~7
    assert list(iter_records(kept, strict=True)) == [record._replace(offset=n) for n, record in enumerate(content)]


def test_markers_are_not_compressed() -> None:
    marker = memoryview(bytearray(build_end_txn_marker(EndTxnMarker(5, 0, 0, is_commit=True), timestamp_ms=NOW_MS)))
    assert check(marker, LogConfig(compression_type="zstd"), from_client=False)[1] is marker


def test_a_coordinators_batch_is_compressed_as_its_topic_says() -> None:
    config = LogConfig(compression_type="zstd", compact=True)
    header, kept = check(batch(Record(-1, NOW_MS, b"k", bytes(500))), config, from_client=False)
    assert header.compression is Compression.ZSTD
    assert [record.value for record in iter_records(kept)] == [bytes(500)]


DAMAGED = [
    pytest.param(batch_of(b"\xa5" * 50, 1), id="random bytes"),
    pytest.param(batch_of(encode_record(0, 0, b"k", b"v", ()) + bytes(40), 3), id="too few records"),
    pytest.param(batch_of(encode_record(0, 0, b"k", b"v", ()) * 2, 2), id="offsets"),
    pytest.param(batch_of(encode_record(0, 0, b"k", b"v", ()), 400, Compression.ZSTD), id="a count that may be"),
]


@pytest.mark.parametrize("records", DAMAGED)
def test_damaged_records_are_refused_where_they_are_looked_at(records: memoryview) -> None:
    header, _ = check(records, DEFAULTS)  # by its header alone nothing is wrong with it
    assert header.record_count >= 1
    with pytest.raises(InvalidRecordError):
        check(records, LogConfig(validates_all_records=True))


def test_bytes_that_the_codec_cannot_read() -> None:
    like = parse_batch_header(build_batch([Record(timestamp_ms=NOW_MS)]))
    records = memoryview(bytearray(assemble_batch(like._replace(attributes=Compression.ZSTD), b"no such stream")))
    with pytest.raises(InvalidRecordError):
        check(records, LogConfig(validates_all_records=True))


@pytest.mark.parametrize("max_timestamp_ms", [-1, NOW_MS - 9, NOW_MS + 9, NOW_MS + 9 * HOUR_MS])
@pytest.mark.parametrize("codec", list(Compression))
def test_a_largest_timestamp_that_cannot_be_is_put_right(codec: Compression, max_timestamp_ms: int) -> None:
    """As Kafka does, which computes it: there are clients that leave it at -1."""
    payload = encode_record(0, 5, b"k", b"v", ()) + encode_record(1, 2, b"k", b"v", ())
    header, kept = check(batch_of(payload, 2, codec, max_timestamp_ms=max_timestamp_ms), DEFAULTS)
    assert header.max_timestamp_ms == NOW_MS + 5
    assert header == parse_batch_header(kept)
    verify_crc(kept, 0, header)
    assert [record.timestamp_ms for record in iter_records(kept, strict=True)] == [NOW_MS + 5, NOW_MS + 2]


def test_a_largest_timestamp_that_may_be_is_put_right_where_records_are_looked_at() -> None:
    records = batch_of(encode_record(0, 0, b"k", b"v", ()), 1, max_timestamp_ms=NOW_MS)
    early = parse_batch_header(records)._replace(base_timestamp_ms=NOW_MS - HOUR_MS)
    records = memoryview(bytearray(assemble_batch(early, bytes(records[61:]))))
    assert check(records, DEFAULTS)[1] is records
    assert check(records, LogConfig(validates_all_records=True))[0].max_timestamp_ms == NOW_MS - HOUR_MS


def test_one_bad_timestamp_makes_it_the_error_of_timestamps() -> None:
    records = batch(Record(timestamp_ms=NOW_MS), Record(-1, NOW_MS + 2 * HOUR_MS, b"k"))
    with pytest.raises(InvalidTimestampError) as refused:
        check(records, LogConfig(compact=True))
    assert [index for index, _ in refused.value.refused] == [0, 1]


def test_a_topic_that_stamps_records_takes_any_timestamp() -> None:
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME, validates_all_records=True)
    far_ms = NOW_MS + 9 * HOUR_MS
    assert check(batch(Record(timestamp_ms=far_ms)), config)[0].max_timestamp_ms == far_ms


def test_the_brokers_timestamp_type_from_a_producer() -> None:
    """Kafka takes it away from a topic that keeps the producer's timestamps, and refuses it where it stamps itself."""
    records = batch(Record(timestamp_ms=NOW_MS), timestamp_type=BatchTimestampType.LOG_APPEND_TIME)
    header, kept = check(records, DEFAULTS)
    assert header.timestamp_type is BatchTimestampType.CREATE_TIME
    verify_crc(kept, 0, header)
    with pytest.raises(InvalidTimestampError) as refused:
        check(records, LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert [index for index, _ in refused.value.refused] == [0]


@pytest.mark.parametrize("codec", list(Compression))
def test_records_with_the_brokers_timestamp_type_are_recompressed_as_their_readers_see_them(codec: Compression) -> None:
    sent = [Record(-1, NOW_MS + number, b"k", bytes([number]), ((f"h{number}", b""),)) for number in range(3)]
    records = batch(*sent, timestamp_type=BatchTimestampType.LOG_APPEND_TIME, compression=codec)
    header, kept = check(records, LogConfig(compression_type="zstd"))
    verify_crc(kept, 0, header)
    assert (header.timestamp_type, header.compression) == (BatchTimestampType.CREATE_TIME, Compression.ZSTD)
    assert [record.value for record in iter_records(kept)] == [record.value for record in sent]
    assert [record.headers for record in iter_records(kept)] == [record.headers for record in sent]
    # With its codec a batch stays as it is, and the records' own times show again.
    expected = [0, 1, 2] if codec is Compression.ZSTD else [2, 2, 2]
    assert [record.timestamp_ms - NOW_MS for record in iter_records(kept)] == expected
    assert header.base_timestamp_ms - NOW_MS == expected[0]


def test_only_what_is_small_even_when_it_is_decompressed_is_looked_at_at_once(decompressed: list[int]) -> None:
    config = LogConfig(compact=True)

    def check_at_once(value: bytes, codec: Compression) -> None:
        records = batch(Record(-1, NOW_MS, b"k", value), compression=codec)
        check_leader_batch(records, config, NOW_MS, from_client=True, checks_all=True)

    check_at_once(bytes(8_000), Compression.NONE)
    check_at_once(bytes(8_000), Compression.ZSTD)
    with pytest.raises(ChecksTakeLongError):
        check_at_once(bytes(9_000), Compression.NONE)
    with pytest.raises(ChecksTakeLongError):
        check_at_once(bytes(9_000), Compression.ZSTD)
    assert max(decompressed) <= 8_192


class TestDecompressedRecords:
    """`max.decompressed.message.bytes` is about one record of a compressed batch."""

    CONFIG = LogConfig(max_decompressed_record_bytes=1_000)

    def test_the_default_looks_at_none(self) -> None:
        assert not checks_records(DEFAULTS)
        assert checks_records(self.CONFIG)

    @pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
    def test_the_largest_record(self, codec: Compression) -> None:
        # Attributes, timestamp, offset, no key, the length of the value, and headers are seven bytes.
        for size_bytes, is_taken in ((993, True), (994, False)):
            records = batch(*[Record(-1, NOW_MS, None, bytes(size_bytes))] * 3, compression=codec)
            if is_taken:
                assert check_and_recompress(records, self.CONFIG, NOW_MS).header.record_count == 3
                continue
            words = "1001 exceeds the configured maximum record size of 1000"
            with pytest.raises(InvalidRecordError, match=words):
                check_and_recompress(records, self.CONFIG, NOW_MS)
            with pytest.raises(InvalidRecordError, match=words):
                check_leader_batch(records, self.CONFIG, NOW_MS, from_client=True, checks_all=True)

    def test_what_is_not_compressed_is_not_bound(self) -> None:
        records = batch(Record(-1, NOW_MS, None, bytes(5_000)))
        assert check_and_recompress(records, self.CONFIG, NOW_MS).header.record_count == 1
