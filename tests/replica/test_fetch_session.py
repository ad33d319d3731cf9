"""Fetch sessions (KIP-227): what is told, what is refused, and who has to go when the cache is full."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kproto.schema import ZERO_UUID
from ottla.replica.errors import InvalidSessionEpochError, SessionNotFoundError, SessionTopicIdError
from ottla.replica.fetch import CONSUMER_REPLICA_ID, FetchPartition, FetchResult
from ottla.replica.fetch_session import (
    EVICTION_AGE_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessionCache,
    next_epoch,
)
from ottla.replica.partition import EpochEndOffset
from ottla.storage.clock import ManualClock
from ottla.storage.errors import OffsetOutOfRangeError
from ottla.storage.memory.iobuf import IOBuf


def requested(*partitions: int, offset: int = 0) -> dict[Any, FetchPartition]:
    return {("topic", index): FetchPartition(ZERO_UUID, index, offset, name="topic") for index in partitions}


def answer(size_bytes: int = 0, high_watermark: int = 0, log_start_offset: int = 0, **fields: Any) -> FetchResult:
    result = FetchResult(high_watermark=high_watermark, log_start_offset=log_start_offset)
    if size_bytes:
        result.records = IOBuf()
        result.records.append(bytes(size_bytes))
    for name, value in fields.items():
        setattr(result, name, value)
    return result


def failed() -> FetchResult:
    return FetchResult(OffsetOutOfRangeError(0, 0, 0))


class Sessions:
    """A cache and the requests of clients to it."""

    def __init__(self, slots: int = 10, **options: int) -> None:
        self.clock = ManualClock()
        self.cache = FetchSessionCache(slots, self.clock, random.Random(0), **options)

    def open(
        self, session_id: int, epoch: int, partitions: dict[Any, FetchPartition] | None = None, **options: Any
    ) -> FetchContext:
        values: dict[str, Any] = {"forgotten": (), "uses_topic_ids": False, "replica_id": CONSUMER_REPLICA_ID} | options
        forgotten = values.pop("forgotten")
        return self.cache.open(session_id, epoch, partitions or {}, forgotten, **values)

    def begin(self, *partitions: int, **options: Any) -> int:
        """Start a session in which everything was told as empty; returns its id, 0 if there is no room for it."""
        context = self.open(NO_SESSION, INITIAL_EPOCH, requested(*partitions), **options)
        session_id, told = finish(context, [answer()] * len(partitions))
        assert list(told) == list(range(len(partitions)))
        return session_id


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


def finish(context: FetchContext, results: list[FetchResult]) -> tuple[int, Any]:
    """Answer, and tell it."""
    answered = context.answer(results)
    context.keep(results, answered[1])
    return answered


def indexes(context: FetchContext) -> list[int]:
    return [partition.partition for partition in context.partitions]


def test_a_full_fetch_begins_a_session_and_is_told_everything(sessions: Sessions) -> None:
    assert sessions.begin(0, 1) != NO_SESSION
    assert len(sessions.cache) == 1
    assert sessions.cache.partition_count == 2


def test_the_final_epoch_begins_no_session(sessions: Sessions) -> None:
    context = sessions.open(NO_SESSION, FINAL_EPOCH, requested(0))
    assert finish(context, [answer()]) == (NO_SESSION, range(1))
    assert len(sessions.cache) == 0


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_fetch_ends_the_session_it_names(sessions: Sessions, epoch: int) -> None:
    session_id = sessions.begin(0)
    sessions.open(session_id, epoch, requested(0))
    with pytest.raises(SessionNotFoundError):
        sessions.open(session_id, 1)


def test_an_incremental_fetch_reads_all_and_tells_nothing_new(sessions: Sessions) -> None:
    session_id = sessions.begin(0, 1)
    context = sessions.open(session_id, 1)
    assert indexes(context) == [0, 1]
    assert finish(context, [answer(), answer()]) == (session_id, [])


@pytest.mark.parametrize(
    "changed",
    [
        answer(size_bytes=1),
        answer(high_watermark=1),
        answer(log_start_offset=1),
        failed(),
        answer(diverging_epoch=EpochEndOffset(0, 0)),
    ],
    ids=["records", "high watermark", "log start", "error", "divergence"],
)
def test_only_what_changed_is_told(sessions: Sessions, changed: FetchResult) -> None:
    session_id = sessions.begin(0, 1, 2)
    context = sessions.open(session_id, 1)
    assert finish(context, [answer(), changed, answer()]) == (session_id, [1])


def test_a_partition_is_told_again_when_its_error_is_gone(sessions: Sessions) -> None:
    session_id = sessions.begin(0)
    for epoch in (1, 2):
        assert finish(sessions.open(session_id, epoch), [failed()])[1] == [0]
    assert finish(sessions.open(session_id, 3), [answer()])[1] == [0]
    assert finish(sessions.open(session_id, 4), [answer()])[1] == []


@pytest.mark.parametrize("moved", [{"high_watermark": 9}, {"log_start_offset": 9}])
def test_a_follower_is_told_again_what_it_has_not_taken_in(sessions: Sessions, moved: dict[str, int]) -> None:
    """It drops an answer that comes when it follows in another leader epoch already, and names the partition again."""
    session_id = sessions.begin(0, replica_id=3)
    knows = {"high_watermark": 0, "log_start_offset": 0}

    def told(epoch: int) -> Any:
        asked = FetchPartition(
            ZERO_UUID,
            0,
            9,
            name="topic",
            known_high_watermark=knows["high_watermark"],
            log_start_offset=knows["log_start_offset"],
        )
        context = sessions.open(session_id, epoch, {("topic", 0): asked}, replica_id=3)
        return finish(context, [answer(**moved)])[1]

    assert told(1) == told(2) == [0]
    knows |= moved
    assert told(3) == []


def test_what_got_data_is_read_last_the_next_time(sessions: Sessions) -> None:
    session_id = sessions.begin(0, 1, 2)
    finish(sessions.open(session_id, 1), [answer(size_bytes=5), answer(), answer(size_bytes=5)])
    assert indexes(sessions.open(session_id, 2)) == [1, 0, 2]


def test_partitions_are_added_changed_and_forgotten(sessions: Sessions) -> None:
    session_id = sessions.begin(0, 1)
    changes = requested(1, 2, offset=7)
    context = sessions.open(session_id, 1, changes, forgotten=[("topic", 0), ("topic", 9)])
    assert indexes(context) == [1, 2]
    assert [partition.fetch_offset for partition in context.partitions] == [7, 7]
    # What is new was never told; what was only changed was.
    assert finish(context, [answer(), answer()])[1] == [1]


@pytest.mark.parametrize(("replica_id", "order"), [(CONSUMER_REPLICA_ID, [2, 0, 1]), (3, [1, 2, 0])])
def test_a_follower_gets_first_what_it_is_in_sync_with(sessions: Sessions, replica_id: int, order: list[int]) -> None:
    """Nobody's acknowledgement waits for what a new replica copies; among what is copied all have their turn."""
    copied, in_sync = SimpleNamespace(isr=(1, 2)), SimpleNamespace(isr=(1, 2, 3))

    def answers(context: FetchContext, *sizes: int) -> list[FetchResult]:
        partitions = {1: in_sync}
        return [
            answer(size_bytes=size, partition=partitions.get(index, copied))
            for index, size in zip(indexes(context), sizes, strict=True)
        ]

    context = sessions.open(NO_SESSION, INITIAL_EPOCH, requested(0, 1, 2), replica_id=replica_id)
    session_id, _ = finish(context, answers(context, 0, 0, 0))
    context = sessions.open(session_id, 1, replica_id=replica_id)
    finish(context, answers(context, 5, 5, 0))
    assert indexes(sessions.open(session_id, 2, replica_id=replica_id)) == order


def test_a_session_without_partitions_ends(sessions: Sessions) -> None:
    session_id = sessions.begin(0)
    context = sessions.open(session_id, 1, forgotten=[("topic", 0)])
    assert finish(context, []) == (NO_SESSION, range(0))
    with pytest.raises(SessionNotFoundError):
        sessions.open(session_id, 2)


def test_a_lost_or_repeated_request_is_refused(sessions: Sessions) -> None:
    session_id = sessions.begin(0)
    for epoch in (2, 5):
        with pytest.raises(InvalidSessionEpochError):
            sessions.open(session_id, epoch)
    sessions.open(session_id, 1)
    with pytest.raises(InvalidSessionEpochError):
        sessions.open(session_id, 1)


def test_an_unknown_session_is_refused(sessions: Sessions) -> None:
    with pytest.raises(SessionNotFoundError):
        sessions.open(12345, 1)


@pytest.mark.parametrize("uses_topic_ids", [True, False])
def test_names_and_ids_do_not_mix(sessions: Sessions, uses_topic_ids: bool) -> None:
    session_id = sessions.begin(0, uses_topic_ids=uses_topic_ids)
    with pytest.raises(SessionTopicIdError):
        sessions.open(session_id, 1, uses_topic_ids=not uses_topic_ids)
    sessions.open(session_id, 1, uses_topic_ids=uses_topic_ids)


def test_an_overtaken_request_is_refused_at_its_end(sessions: Sessions) -> None:
    """The client gave up waiting and sent its next request while the first was still waiting for data."""
    session_id = sessions.begin(0)
    first = sessions.open(session_id, 1)
    second = sessions.open(session_id, 2)
    with pytest.raises(InvalidSessionEpochError):
        finish(first, [answer()])
    assert finish(second, [answer()]) == (session_id, [])


def test_epochs_wrap_to_one() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(2147483647) == 1
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


def test_a_full_cache_of_fresh_sessions_takes_no_more() -> None:
    sessions = Sessions(slots=2)
    sessions.begin(0)
    sessions.begin(0)
    assert sessions.begin(0, 1, 2) == NO_SESSION
    assert len(sessions.cache) == 2


def test_without_slots_there_are_no_sessions() -> None:
    assert Sessions(slots=0).begin(0) == NO_SESSION


def test_an_idle_session_goes_first() -> None:
    sessions = Sessions(slots=2)
    busy, idle = sessions.begin(0), sessions.begin(0)
    sessions.clock.advance(EVICTION_AGE_MS + 1)
    sessions.open(busy, 1)
    assert sessions.begin(0) != NO_SESSION
    sessions.open(busy, 2)
    with pytest.raises(SessionNotFoundError):
        sessions.open(idle, 1)
    assert sessions.cache.evictions == 1


def test_an_old_smaller_session_gives_way_to_a_larger_one() -> None:
    sessions = Sessions(slots=2)
    small, large = sessions.begin(0), sessions.begin(0, 1, 2)
    sessions.clock.advance(EVICTION_AGE_MS + 1)
    for session_id in (small, large):
        sessions.open(session_id, 1)
    assert sessions.begin(0) == NO_SESSION  # of the same size: no reason to change
    assert sessions.begin(0, 1) != NO_SESSION
    sessions.open(large, 2)
    with pytest.raises(SessionNotFoundError):
        sessions.open(small, 2)


def test_a_follower_displaces_a_consumer_and_never_the_other_way() -> None:
    sessions = Sessions(slots=1)
    sessions.begin(0, 1, 2)
    follower = sessions.begin(0, replica_id=2)
    assert follower != NO_SESSION
    sessions.clock.advance(EVICTION_AGE_MS + 1)
    sessions.open(follower, 1)
    assert sessions.begin(0, 1, 2, 3) == NO_SESSION


def test_a_session_that_is_not_told_never_was() -> None:
    """The client got an empty answer instead, being beyond its quota."""
    full = Sessions(slots=1)
    other = full.begin(0)
    context = full.open(NO_SESSION, INITIAL_EPOCH, requested(0, 1), replica_id=2)
    session_id, _ = context.answer([answer(), answer()])
    assert session_id != NO_SESSION
    assert (len(full.cache), full.cache.evictions, full.cache.partition_count) == (1, 0, 1)
    full.open(other, 1)
    with pytest.raises(SessionNotFoundError):
        full.open(session_id, 1)


def test_what_is_not_told_now_is_told_the_next_time(sessions: Sessions) -> None:
    session_id = sessions.begin(0, 1, 2)
    results = [answer(size_bytes=5, high_watermark=3), answer(high_watermark=1), answer()]
    for epoch in (1, 2):
        context = sessions.open(session_id, epoch)
        assert indexes(context) == [0, 1, 2]
        assert context.answer(results) == (session_id, [0, 1])
    assert finish(sessions.open(session_id, 3), results) == (session_id, [0, 1])
    context = sessions.open(session_id, 4)
    assert indexes(context) == [1, 2, 0]
    assert context.answer([answer(high_watermark=1), answer(), answer(high_watermark=3)]) == (session_id, [])


def test_sessions_have_so_many_partitions_together() -> None:
    sessions = Sessions(max_partitions=5)
    first, second = sessions.begin(0, 1), sessions.begin(0, 1)
    assert sessions.begin(0, 1) == NO_SESSION
    assert sessions.begin(7) != NO_SESSION
    assert sessions.begin(7) == NO_SESSION
    with pytest.raises(SessionNotFoundError):  # it begins anew, and is told that there is no room
        sessions.open(first, 1, requested(2))
    assert sessions.cache.partition_count == 3
    sessions.open(second, 1, requested(2), forgotten=[("topic", 0), ("topic", 1)])
    assert sessions.cache.partition_count == 2
    sessions.open(second, FINAL_EPOCH)
    assert sessions.cache.partition_count == 1


def test_sessions_that_nobody_uses_any_more_make_room_for_partitions() -> None:
    """Clients that are gone do not say so."""
    sessions = Sessions(max_partitions=6)
    used, _, _ = sessions.begin(0, 1), sessions.begin(0), sessions.begin(0)
    sessions.clock.advance(EVICTION_AGE_MS + 1)
    sessions.open(used, 1)
    assert sessions.begin(*range(5)) == NO_SESSION
    assert sessions.cache.evictions == 0
    assert sessions.begin(*range(4)) != NO_SESSION
    assert (sessions.cache.evictions, sessions.cache.partition_count) == (2, 6)
    sessions.open(used, 2)


def test_who_makes_room_counts() -> None:
    sessions = Sessions(slots=1, max_partitions=3)
    sessions.begin(0, 1)
    assert sessions.begin(0, 1, 2, replica_id=2) != NO_SESSION
    assert sessions.cache.partition_count == 3


@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 3)),  # added or changed
            st.sets(st.integers(0, 3)),  # forgotten
            st.sets(st.integers(0, 3)),  # whose high watermark moves before
        ),
        max_size=10,
    )
)
def test_a_client_that_applies_what_it_is_told_knows_everything(
    steps: list[tuple[set[int], set[int], set[int]]],
) -> None:
    """However a session goes, the client's picture, updated only by what it is told, equals the broker's."""
    sessions = Sessions()
    watermarks = dict.fromkeys(range(4), 0)
    session_id = sessions.begin(0, 1)
    wanted, known = {0, 1}, {0: 0, 1: 0}
    for epoch, (added, forgotten, moved) in enumerate(steps, start=1):
        for index in moved:
            watermarks[index] += 1
        wanted = (wanted | added) - forgotten
        context = sessions.open(session_id, epoch, requested(*added), forgotten=[("topic", i) for i in forgotten])
        answers = [answer(high_watermark=watermarks[index]) for index in indexes(context)]
        answered_id, told = finish(context, answers)
        if not wanted:
            assert answered_id == NO_SESSION
            return
        assert set(indexes(context)) == wanted
        known = {index: mark for index, mark in known.items() if index in wanted}
        for position in told:
            known[indexes(context)[position]] = answers[position].high_watermark
        assert known == {index: watermarks[index] for index in wanted}
