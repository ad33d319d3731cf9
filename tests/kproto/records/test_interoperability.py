"""Batches of other Python clients are read here, and ours there."""

import warnings

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder

from ottla.kproto.records import (
    Compression,
    Record,
    build_batch,
    iter_records,
    parse_batch_header,
    validate_produced_batch,
    verify_crc,
)

with warnings.catch_warnings():
    # kafka-python reads its resources in a way that Python 3.11 and 3.12 deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

RECORDS = [
    Record(offset, 1_700_000_000_000 + offset * 700, b"key %d" % offset, b"value" * offset, (("h", b"x"), ("n", None)))
    for offset in range(50)
] + [Record(50, 1_600_000_000_000, None, None)]


@pytest.mark.parametrize("builder_class", [AiokafkaBuilder, KafkaPythonBuilder])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_their_batches_are_read_here(builder_class: type, codec: Compression) -> None:
    builder = builder_class(2, int(codec), True, 11, 3, 5, 100_000)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = parse_batch_header(batch)
    verify_crc(batch, 0, header)
    validate_produced_batch(header)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 3, 5)
    assert list(iter_records(batch, strict=True)) == RECORDS


@pytest.mark.parametrize(
    ("batch_class", "codec"),
    [
        # kafka-python would need further packages for the other codecs.
        (KafkaPythonBatch, Compression.NONE),
        (KafkaPythonBatch, Compression.GZIP),
        *((AiokafkaBatch, codec) for codec in Compression),
    ],
)
def test_ours_are_read_there(batch_class: type, codec: Compression) -> None:
    theirs = batch_class(build_batch(RECORDS, compression=codec))
    assert theirs.validate_crc()
    assert [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in theirs
    ] == RECORDS
