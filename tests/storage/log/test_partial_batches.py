"""Batches of which records were taken out after they were checked: they keep their offsets and their sequences."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.kproto.records import iter_records, parse_batch_header, rebuild_batch
from ottla.storage.config import LogConfig
from ottla.storage.errors import ChecksOutdatedError, InvalidRecordError, OutOfOrderSequenceError
from ottla.storage.log.append_types import CheckedBatch

PRODUCER = {"producer_id": 7, "producer_epoch": 0}


async def partial(harness: Any, log: Any, values: list[bytes], kept: set[int], **header: Any) -> CheckedBatch:
    """A batch that was checked, with only those of its records left that `kept` names by their indexes."""
    whole = await log.check_ahead(harness.batch(values, **header), now_ms=harness.clock.time_ms())
    source = harness.batch(values, **header) if whole.changed is None else whole.changed
    records = [record for record in iter_records(source, 0, whole.header) if record.offset in kept]
    rebuilt = memoryview(bytearray(rebuild_batch(whole.header, records)))
    return CheckedBatch(parse_batch_header(rebuilt), rebuilt, whole.config)


def append(harness: Any, log: Any, checked: CheckedBatch) -> Any:
    assert checked.changed is not None
    return log.append_as_leader(checked.changed, None, leader_epoch=0, now_ms=harness.clock.time_ms(), checked=checked)


async def test_offsets_and_sequences_stay_as_the_producer_counts_them(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        some = await partial(harness, log, [b"a", b"b", b"c"], {0, 2}, base_sequence=0, **PRODUCER)
        none = await partial(harness, log, [b"d", b"e"], set(), base_sequence=3, **PRODUCER)
        assert append(harness, log, some)[:2] == (0, 2)
        assert append(harness, log, none)[:2] == (3, 4)
        for again, offsets in ((some, (0, 2)), (none, (3, 4))):
            info = append(harness, log, again)
            assert (info[:2], info.duplicate) == (offsets, True)
        with pytest.raises(OutOfOrderSequenceError):
            harness.append(log, b"g", base_sequence=6, **PRODUCER)
        assert harness.append(log, b"f", base_sequence=5, **PRODUCER).base_offset == 5
        await log.flush()
        assert await harness.read_all(log) == [(0, b"a"), (2, b"c"), (5, b"f")]
    async with harness.manager(tail_cache_bytes=0) as manager:
        log = await harness.open(manager)
        assert log.log_end_offset == 6
        assert await harness.read_all(log) == [(0, b"a"), (2, b"c"), (5, b"f")]
        assert append(harness, log, none._replace(config=log.config)).duplicate


async def test_in_the_codec_of_the_topic_and_with_its_timestamps(harness: Any) -> None:
    from ottla.storage.config import TimestampType

    stamps = TimestampType.LOG_APPEND_TIME
    async with harness.manager() as manager:
        log = await harness.open(manager, compression_type="zstd", message_timestamp_type=stamps)
        append(harness, log, await partial(harness, log, [b"a" * 900, b"b" * 900], {1}))
        empty = append(harness, log, await partial(harness, log, [b"c"], set()))
        assert empty[:3] == (2, 2, harness.clock.time_ms())
        await log.flush()
        assert await harness.read_all(log) == [(1, b"b" * 900)]


async def test_an_emptied_batch_opens_no_transaction(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        header = {"base_sequence": 0, "is_transactional": True, **PRODUCER}
        append(harness, log, await partial(harness, log, [b"a"], set(), **header))
        await log.flush()
        log.advance_high_watermark(1)
        assert log.last_stable_offset == 1


async def test_it_is_not_appended_under_other_settings_than_it_was_checked_with(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        checked = await partial(harness, log, [b"a", b"b"], {0})
        log.set_config(LogConfig(max_message_bytes=100))
        with pytest.raises(ChecksOutdatedError):
            append(harness, log, checked)
        assert log.log_end_offset == 0


async def test_a_producer_may_not_send_one(harness: Any) -> None:
    async with harness.manager() as manager:
        log = await harness.open(manager)
        checked = await partial(harness, log, [b"a", b"b"], {0})
        with pytest.raises(InvalidRecordError):
            log.append_as_leader(checked.changed, None, leader_epoch=0, now_ms=harness.clock.time_ms())
