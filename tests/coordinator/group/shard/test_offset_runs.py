"""Loading offsets by columns comes to the same as replaying record by record, whatever is in the log."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.classic.records import group_tombstone
from ottla.coordinator.group.offset_and_metadata import CommittedOffset, TopicPartition
from ottla.coordinator.group.shard import offset_records
from ottla.coordinator.group.shard.offset_runs import MAX_RECORDS, cut_run
from ottla.coordinator.replay import CoordinatorRecord, SkippedRecordError, UnreadableRecordError, replay_records
from ottla.kproto.records import BatchBuilder, iter_batches
from tests.coordinator.group.shards import still_shard

ID = UUID(int=7)


def commit(group: str, topic: str, partition: int, offset: int, metadata: str = "") -> CoordinatorRecord:
    committed = CommittedOffset(-1, offset, 3, metadata, 1_700_000_000_000, -1, ID)
    return offset_records.offset_commit(group, TopicPartition(topic, partition), committed)


def batch(
    written: Sequence[CoordinatorRecord],
    *,
    base_offset: int = 0,
    gaps: Sequence[int] = (),
    times: Sequence[int] = (),
    **options: Any,
) -> bytes:
    """A batch as a coordinator builds it; `gaps` lie before records as compaction leaves them."""
    builder = BatchBuilder(base_offset=base_offset, **options)
    offset = base_offset
    for number, record in enumerate(written):
        offset += gaps[number] if number < len(gaps) else 0
        time_ms = 1_700_000_000_000 + (times[number] if number < len(times) else 0)
        builder.append(key=record.key, value=record.value, timestamp_ms=time_ms, offset=offset)
        offset += 1
    return builder.build()


def replayed(data: bytes, *, in_bulk: bool) -> dict[tuple[str, TopicPartition], CommittedOffset | None]:
    shard = still_shard()
    buf = memoryview(data)
    for position, header in iter_batches(buf):
        steps = shard.replay_batch(buf, position, header) if in_bulk else replay_records(shard, buf, position, header)
        for _ in steps:
            pass
    return {
        (group_id, partition): shard.offsets.get(group_id, partition)
        for group_id in shard.groups
        for partition in shard.offsets.partitions(group_id)
    } | {(group_id, TopicPartition("", -1)): None for group_id in shard.groups}


groups = st.sampled_from(["g", "h", "other", "grüppe"])
commits = st.builds(
    commit,
    groups,
    st.sampled_from(["t", "u", "topic"]),
    st.integers(0, 40),
    st.integers(0, 99),
    st.sampled_from(["", "m"]),
)
tombstones = st.builds(
    lambda group, partition: offset_records.offset_tombstone(group, TopicPartition("t", partition)),
    groups,
    st.integers(0, 40),
)
alike = st.builds(
    lambda group, first, count: [commit(group, "t", first + number, number) for number in range(count)],
    groups,
    st.integers(0, 40),
    st.integers(1, 150),
)
mixed = st.lists(st.one_of(commits, tombstones), min_size=1, max_size=40)


@given(
    st.lists(st.one_of(alike, mixed), min_size=1, max_size=3),
    st.one_of(st.just([]), st.lists(st.integers(0, 3), max_size=40)),
    st.one_of(st.just([]), st.lists(st.integers(0, 300), max_size=40)),
    st.booleans(),
)
def test_it_comes_to_the_same(
    parts: list[list[CoordinatorRecord]], gaps: list[int], times: list[int], one_batch: bool
) -> None:
    if one_batch:
        parts = [[record for part in parts for record in part]]
    data = b""
    end = 5
    for part in parts:
        data += batch(part, base_offset=end, gaps=gaps, times=times)
        end += len(part) + sum(gaps)
    assert replayed(data, in_bulk=True) == replayed(data, in_bulk=False)


@given(
    st.integers(0, 99),
    st.booleans(),
    st.sampled_from(["", "m", "m" * 40]),
    st.integers(0, 90),
    st.integers(0, 255),
)
def test_a_damaged_byte_anywhere_is_found_in_bulk_as_well(
    number: int, in_key: bool, metadata: str, place: int, byte: int
) -> None:
    """One byte of one record's key or value is another: both ways read the same, or both refuse."""
    written = [commit("g", "topic", partition, partition, metadata) for partition in range(100)]
    key, value = written[number]
    assert value is not None
    damaged = bytearray(key if in_key else value)
    damaged[place % len(damaged)] = byte
    written[number] = CoordinatorRecord(bytes(damaged), value) if in_key else CoordinatorRecord(key, bytes(damaged))
    found: list[Any] = []
    for in_bulk in (True, False):
        try:
            found.append(replayed(batch(written), in_bulk=in_bulk))
        except (UnreadableRecordError, SkippedRecordError):
            found.append(None)
    assert found[0] == found[1]


@pytest.mark.parametrize("count", [8, 63, 64, 65, 300, 1000, 9000])
def test_offsets_of_one_group_are_a_few_runs(count: int) -> None:
    data = memoryview(batch([commit("g", "t", number, number) for number in range(count)], base_offset=100))
    ((position, header),) = iter_batches(data)
    payload = bytes(data[position + 61 :])
    index = end = 0
    while index < min(count, 8192) and (run := cut_run(payload, end, header, index)) is not None:
        assert run.group_id == "g"
        assert 0 < len(run.keys) == len(run.values) <= MAX_RECORDS
        index, end = index + len(run.keys), run.end
    assert index >= min(count, 8192 - MAX_RECORDS)
    found = replayed(bytes(data), in_bulk=True)
    assert len(found) == count + 1
    last = found["g", TopicPartition("t", count - 1)]
    assert last is not None
    assert (last.record_offset, last.offset) == (100 + count - 1, count - 1)


def test_what_is_no_commit_is_no_run() -> None:
    group = group_tombstone("g")
    legacy = [
        CoordinatorRecord(b"\0\0" + commit("g", "t", n, n).key[2:], commit("g", "t", n, n).value) for n in range(9)
    ]
    for written in (
        [group] * 9,
        legacy,
        [offset_records.offset_tombstone("g", TopicPartition("t", n)) for n in range(9)],
    ):
        data = memoryview(batch(written))
        ((position, header),) = iter_batches(data)
        assert cut_run(bytes(data[position + 61 :]), 0, header, 0) is None


def test_a_payload_that_is_cut_off_is_no_run() -> None:
    data = memoryview(batch([commit("g", "t", number, number) for number in range(20)]))
    ((position, header),) = iter_batches(data)
    payload = bytes(data[position + 61 :])
    for size in range(0, len(payload), 7):
        assert cut_run(payload[:size], 0, header, 0) is None


def test_a_transaction_is_replayed_record_by_record() -> None:
    written = [commit("g", "t", number, number) for number in range(20)]
    data = batch(written, producer_id=4, producer_epoch=0, is_transactional=True)
    assert replayed(data, in_bulk=True) == {("g", TopicPartition("", -1)): None}  # pending, until the marker
