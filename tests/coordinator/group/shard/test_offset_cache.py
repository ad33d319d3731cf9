"""Committed offsets as the bytes of their records."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.offset_and_metadata import CommittedOffset, TopicPartition
from ottla.coordinator.group.shard import offset_records
from ottla.coordinator.group.shard.offset_cache import OffsetCache
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records.consumer_offsets import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.kproto.internal_records.coordinator import build_key, build_value

T0, T1 = TopicPartition("täglich", 0), TopicPartition("t", 70_000)


def commit(
    cache: OffsetCache, partition: TopicPartition, at: int, offset: int, *, time_ms: int = 0, expire_ms: int = -1
) -> None:
    committed = CommittedOffset(-1, offset, 3, "note", time_ms, expire_ms)
    key, value = offset_records.offset_commit("g", partition, committed)
    assert value is not None
    assert (offset_records.offset_group(key), offset_records.offset_partition(key)) == ("g", partition)
    cache.put("g", key, (at, value))


def test_offsets_come_back_as_they_were_committed() -> None:
    cache = OffsetCache()
    commit(cache, T0, 5, 17, time_ms=99)
    commit(cache, T1, 6, 18)
    assert cache.get("g", T0) == CommittedOffset(5, 17, 3, "note", 99)
    assert cache.get("g", TopicPartition("t", 1)) is cache.get("other", T0) is None
    assert cache.partitions("g") == [T1, T0]
    assert cache.groups() == ["g"]
    assert cache.keys("g") == [offset_records.offset_key("g", partition) for partition in (T0, T1)]
    for partition in (T0, T1):
        assert cache.count("g") > 0
        cache.remove("g", offset_records.offset_key("g", partition))
    assert (cache.count("g"), cache.partitions("g")) == (0, [])


def test_records_of_old_brokers() -> None:
    old = CoordinatorRecord(
        build_key(LegacyOffsetCommitKey(group="g", topic="t", partition=1)),
        build_value(LegacyOffsetCommitValue(offset=7, metadata="old", commit_timestamp=9), 0),
    )
    assert offset_records.is_offset(old.key)
    key = offset_records.current_offset_key(old.key)
    assert key == offset_records.offset_key("g", TopicPartition("t", 1))
    assert old.value is not None
    assert offset_records.decode_offset(4, old.value) == CommittedOffset(4, 7, -1, "old", 9)


def test_a_transaction_does_not_undo_a_later_commit() -> None:
    cache = OffsetCache()
    for partition, at in ((T0, 1), (T1, 9)):
        key, value = offset_records.offset_commit("g", partition, CommittedOffset(-1, 100, -1, "", 0))
        assert value is not None
        cache.put_pending(42, "g", key, (at, value))
    commit(cache, T0, 5, 17)
    commit(cache, T1, 6, 18)
    assert cache.has_pending("g", T0)
    assert cache.has_pending_group("g")
    cache.complete_transaction(42, commit=True)
    assert not cache.has_pending_group("g")
    found = {partition: cache.get("g", partition) for partition in (T0, T1)}
    assert {partition: value.offset for partition, value in found.items() if value} == {T0: 17, T1: 100}


def test_what_retention_removes() -> None:
    cache = OffsetCache()
    commit(cache, T0, 1, 1, time_ms=1_000)
    commit(cache, T1, 2, 2, time_ms=5_000)

    def expired(now_ms: int, since_ms: int | None, subscribed: frozenset[str] = frozenset()) -> list[TopicPartition]:
        keys = cache.committed_keys("g")
        found = cache.expired("g", keys, now_ms=now_ms, retention_ms=100, since_ms=since_ms, subscribed=subscribed)
        return [offset_records.offset_partition(key) for key in found]

    assert expired(1_099, None) == []
    assert expired(1_100, None) == [T0]
    assert expired(9_000, None, frozenset({T0.topic})) == [T1]
    assert expired(6_099, 6_000) == []
    assert expired(6_100, 6_000) == [T0, T1]
    commit(cache, T0, 3, 1, time_ms=1_000, expire_ms=2_000)
    assert expired(2_000, 6_000) == [T0]


@given(
    st.text(max_size=40),
    st.builds(TopicPartition, st.text(max_size=40), st.integers(0, 2**31 - 1)),
    st.builds(
        CommittedOffset,
        record_offset=st.just(-1),
        offset=st.integers(0, 2**63 - 1),
        leader_epoch=st.integers(-1, 2**31 - 1),
        metadata=st.one_of(st.text(max_size=60), st.text(min_size=100, max_size=200)),
        commit_timestamp_ms=st.integers(0, 2**63 - 1),
        expire_timestamp_ms=st.one_of(st.just(-1), st.integers(0, 2**63 - 1)),
        topic_id=st.one_of(st.just(UUID(int=0)), st.uuids()),
    ),
)
def test_a_record_is_what_its_schema_says(group_id: str, partition: TopicPartition, committed: CommittedOffset) -> None:
    record = offset_records.offset_commit(group_id, partition, committed)
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    assert record.key == build_key(key)
    assert record.value == build_value(value, 4 if committed.expire_timestamp_ms < 0 else 1)


@pytest.mark.parametrize("metadata", ["", "note", "n" * 126, "n" * 127, "ü" * 200])
@pytest.mark.parametrize("topic_id", [UUID(int=0), UUID(int=7), UUID(int=2**128 - 1)])
@pytest.mark.parametrize("expire_ms", [-1, 5])
def test_a_topics_id_is_read_out_of_an_offset(metadata: str, topic_id: UUID, expire_ms: int) -> None:
    committed = CommittedOffset(-1, 5, 3, metadata, 99, expire_ms, topic_id)
    _, value = offset_records.offset_commit("g", T0, committed)
    assert value is not None
    assert offset_records.topic_id(value) == offset_records.decode_offset(0, value).topic_id
