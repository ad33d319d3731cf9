"""Records in the internal topics that cannot be read, or that a newer broker wrote: what comes of their partition."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.coordinator.errors import NotCoordinatorError
from ottla.coordinator.group.shard.offset_check import check_offset
from ottla.coordinator.replica_log import ReplicaLog
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.transaction.shard import TransactionShard
from ottla.kproto.codec import parse
from ottla.kproto.errors import DecodeError, ErrorCode
from ottla.kproto.internal_records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from ottla.kproto.internal_records.coordinator import build_key, build_value, parse_value
from ottla.kproto.internal_records.transaction_log import TransactionLogKey, TransactionLogValue
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.kproto.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ottla.kproto.records import EndTxnMarker, Record, build_batch, build_end_txn_marker
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.runtime.stages import finish
from ottla.storage.clock import ManualClock
from tests.doubles.one_topic import OneTopic

Serve = Callable[..., Any]

OFFSET_KEY = build_key(OffsetCommitKey(group="g", topic="t", partition=3))
OFFSET_VALUE = build_value(OffsetCommitValue(offset=7, metadata="m"), 4)
TRANSACTION_KEY = build_key(TransactionLogKey(transactional_id="x"))


def transaction_value(status: int = 4) -> bytes:
    return build_value(TransactionLogValue(producer_id=1, transaction_timeout_ms=1, transaction_status=status), 1)


# Offsets


def is_readable(key: bytes, value: bytes) -> bool:
    """By the schemas alone."""
    try:
        parse(OffsetCommitKey, 0, key, 2)
        parse_value(OffsetCommitValue, value)
    except DecodeError:
        return False
    return True


def damaged(valid: bytes) -> st.SearchStrategy[bytes]:
    """As it is, or with bytes changed, missing or added."""
    place = st.integers(0, len(valid))
    return st.one_of(
        st.just(valid),
        st.builds(lambda at, new: valid[:at] + new + valid[at + len(new) :], place, st.binary(max_size=3)),
        st.builds(lambda at, new: valid[:at] + new + valid[at:], place, st.binary(max_size=3)),
        st.builds(lambda at, count: valid[:at] + valid[at + count :], place, st.integers(1, 3)),
    )


texts = st.text(max_size=5)
keys = st.builds(
    lambda group, topic: build_key(OffsetCommitKey(group=group, topic=topic, partition=1)),
    st.one_of(texts, st.just("g" * 300)),
    st.one_of(texts, st.just("t" * 140)),
).flatmap(damaged)
values = st.builds(
    lambda metadata, topic_id, version: build_value(
        OffsetCommitValue(offset=1, metadata=metadata, **({"topic_id": topic_id} if version == 4 else {})), version
    ),
    st.one_of(texts, st.just("m" * 130)),
    st.uuids(),
    st.integers(0, 4),
).flatmap(damaged)


@given(keys, values)
@example(OFFSET_KEY, OFFSET_VALUE)
@example(b"\x00\x01zz", OFFSET_VALUE)
@example(b"\x00\x01", OFFSET_VALUE)
@example(OFFSET_KEY, b"junk")
@example(OFFSET_KEY, b"")
def test_an_offset_is_found_readable_if_it_is(key: bytes, value: bytes) -> None:
    try:
        check_offset(key, value)
    except DecodeError:
        assert not is_readable(key, value)
    else:
        assert is_readable(key, value)


# Transactions


@asynccontextmanager
async def loaded(log: Any, *batches: bytes) -> AsyncIterator[CoordinatorRuntime[TransactionShard]]:
    for batch in batches:
        await log.append(0, batch)
    async with trio.open_nursery() as nursery:
        runtime = CoordinatorRuntime(
            TRANSACTION_STATE,
            log=log,
            clock=ManualClock(),
            nursery=nursery,
            new_shard=TransactionShard,
        )
        runtime.elect(0)
        await trio.testing.wait_all_tasks_blocked()
        yield runtime
        nursery.cancel_scope.cancel()


def record(key: bytes | None, value: bytes | None) -> bytes:
    return build_batch([Record(key=key, value=value, timestamp_ms=1)])


@pytest.mark.parametrize(
    "skipped",
    [
        record(b"\x00\x09zz", b"junk"),
        record(TRANSACTION_KEY, b"\x00\x02" + b"of a newer broker"),
        build_end_txn_marker(EndTxnMarker(1, 0, 0, True), timestamp_ms=1),
    ],
    ids=["type", "version", "marker"],
)
async def test_what_a_newer_broker_wrote_is_passed_over_with_a_warning(
    log: Any, caplog: pytest.LogCaptureFixture, skipped: bytes
) -> None:
    async with loaded(log, record(TRANSACTION_KEY, transaction_value()), skipped, skipped) as runtime:
        assert [each.transactional_id for each in runtime.shard(0).transactions()] == ["x"]
    (line,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "the first at offset 1" in line.getMessage()


@pytest.mark.parametrize(
    ("unreadable", "why"),
    [
        (record(None, transaction_value()), "the record at offset 1 has no key"),
        (record(b"", b"junk"), "the record at offset 1 cannot be read"),
        (record(b"\x00\x00zz", b"junk"), "the record at offset 1 cannot be read"),
        (record(TRANSACTION_KEY, b""), "the record at offset 1 cannot be read"),
        (record(TRANSACTION_KEY, transaction_value(99)), "there is no transaction status 99"),
    ],
    ids=["no key", "empty key", "key", "value", "status"],
)
async def test_a_record_that_cannot_be_read_fails_its_partition(
    log: Any, caplog: pytest.LogCaptureFixture, unreadable: bytes, why: str
) -> None:
    async with loaded(log, record(TRANSACTION_KEY, transaction_value()), unreadable) as runtime:
        assert runtime.failed == [0]
        with pytest.raises(NotCoordinatorError):
            runtime.shard(0)
    (line,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert why in line.getMessage()
    assert line.exc_info is None


# A whole broker


async def until_loaded(coordinator: Any) -> None:
    while coordinator.runtime.loading():
        await trio.lowlevel.checkpoint()


async def fetched(client: Any, group: str) -> int:
    """The error code of a group's OffsetFetch."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    while True:
        (answer,) = (await client.call(request, 8)).groups
        if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return int(answer.error_code)
        await trio.sleep(0.01)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\x00\x01zz", b"junk"),
        (b"", b"junk"),
        (OFFSET_KEY, b"junk"),
        (b"\x00\x02\x00\x01g", b"\x00\x03junk"),
        (b"\x00\x03\x00\x01g", b"\x00\x00"),
    ],
    ids=["offset key", "empty key", "offset value", "classic group", "consumer group"],
)
async def test_a_broker_starts_with_an_unreadable_record_among_its_groups(
    serve_node: Serve, caplog: pytest.LogCaptureFixture, key: bytes, value: bytes
) -> None:
    settings = {"offsets.topic.num.partitions": "2"}
    async with serve_node(settings) as node:
        topic = await node.broker.controller.ensure_topic(CONSUMER_OFFSETS)
        groups = node.broker.group_coordinator
        await until_loaded(groups)
        broken, whole = (next(g for g in "abcdefgh" if groups.partition_for(g) == index) for index in (0, 1))
        log = ReplicaLog(node.broker.replica_manager, OneTopic(topic.topic_id), "t")
        await finish(log.begin_append(0, record(key, value)))
    async with serve_node(settings) as node:
        client = await node.connect()
        assert await fetched(client, broken) == ErrorCode.NOT_COORDINATOR
        assert await fetched(client, whole) == ErrorCode.NONE
        await node.create_topic("t")
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "__consumer_offsets partition 0 cannot be loaded" in lines[0]


async def test_a_broker_starts_with_an_unreadable_record_among_its_transactions(
    serve_node: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_node({"transaction.state.log.num.partitions": "2"}) as node:
        topic = await node.broker.controller.ensure_topic(TRANSACTION_STATE)
        transactions = node.broker.transaction_coordinator
        await until_loaded(transactions)
        broken, whole = (next(t for t in "abcdefgh" if transactions.partition_for(t) == index) for index in (0, 1))
        log = ReplicaLog(node.broker.replica_manager, OneTopic(topic.topic_id), "t")
        await finish(log.begin_append(0, record(b"\x00\x00zz", b"junk")))
    async with serve_node() as node:
        client = await node.connect()
        request = DescribeTransactionsRequest(transactional_ids=[broken, whole])
        codes = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        while ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in codes:
            answers = (await client.call(request, 0)).transaction_states
            codes = {answer.error_code for answer in answers}
            await trio.lowlevel.checkpoint()
        assert [(it.transactional_id, ErrorCode(it.error_code)) for it in answers] == [
            (broken, ErrorCode.NOT_COORDINATOR),
            (whole, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ]
    lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "__transaction_state partition 0 cannot be loaded" in lines[0]
