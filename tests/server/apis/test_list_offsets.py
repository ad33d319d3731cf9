"""ListOffsets: versions, isolation and errors; what is found is held against Apache Kafka in compat_tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.metadata.image import PartitionState
from ottla.replica import errors as replica
from ottla.replica.partition import Partition
from ottla.storage import errors as storage
from ottla.storage.log.partition_log import TimestampOffset
from ottla.storage.state.leader_epochs import LeaderEpochs

Cluster = Any


class Log:
    """Ten records; offsets 8 and 9 are not committed, 6 and 7 belong to an open transaction."""

    log_start_offset = 2
    log_end_offset = 10
    flushed_end_offset = 10
    high_watermark = 8
    last_stable_offset = 6

    def __init__(self) -> None:
        self.epochs = LeaderEpochs()
        self.epochs.assign(1, 0)
        self.epochs.assign(4, 5)
        self.at: dict[int, TimestampOffset] = {}
        self.latest: TimestampOffset | None = None

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        return self.at.get(timestamp_ms)

    async def max_timestamp_offset(self) -> TimestampOffset | None:
        return self.latest

    def advance_high_watermark(self, offset: int) -> bool:
        return False


@pytest.fixture
def log(cluster: Cluster) -> Log:
    log = Log()
    partition = Partition("topic", cluster.topic.topic_id, 0, log, node_id=0)  # type: ignore[arg-type]
    partition.apply(PartitionState(leader=0, replicas=(0,), isr=(0,), leader_epoch=4))
    partition.epoch_start_offset = 5
    cluster.manager.partition = partition
    return log


def request(timestamp: int, *, name: str = "topic", **options: Any) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(timestamp=timestamp, current_leader_epoch=options.pop("epoch", -1))
    return ListOffsetsRequest(
        topics=[ListOffsetsTopic(name=name, partitions=[asked])], **({"replica_id": -1} | options)
    )


async def ask(cluster: Cluster, version: int, *args: Any, **options: Any) -> tuple[int, int, int, int]:
    response = await cluster.call(request(*args, **options), version)
    (answer,) = response.topics[0].partitions
    return answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch


@pytest.mark.parametrize(
    ("options", "end"),
    [({}, 8), ({"isolation_level": 1}, 6), ({"replica_id": 1}, 10), ({"replica_id": -2}, 10)],
    ids=["read_uncommitted", "read_committed", "follower", "debugging"],
)
async def test_the_latest_offset_for_each_reader(cluster: Cluster, log: Log, options: Any, end: int) -> None:
    assert await ask(cluster, 7, -1, **options) == (0, -1, end, 4)


async def test_the_earliest_offset_has_its_records_epoch(cluster: Cluster, log: Log) -> None:
    assert await ask(cluster, 11, -2) == (0, -1, 2, 1)
    assert await ask(cluster, 11, -4) == (0, -1, 2, 1)


async def test_a_record_is_found_with_its_own_epoch_if_it_is_visible(cluster: Cluster, log: Log) -> None:
    log.at = {100: TimestampOffset(120, 3, 1), 200: TimestampOffset(210, 7, 4)}
    assert await ask(cluster, 11, 100) == (0, 120, 3, 1)
    assert await ask(cluster, 11, 200) == (0, 210, 7, 4)
    assert await ask(cluster, 11, 200, isolation_level=1) == (0, -1, -1, -1)
    assert await ask(cluster, 11, 300) == (0, -1, -1, -1)


async def test_the_largest_timestamp(cluster: Cluster, log: Log) -> None:
    assert await ask(cluster, 7, -3) == (0, -1, -1, -1)
    log.latest = TimestampOffset(500, 4, 1)
    assert await ask(cluster, 7, -3) == (0, 500, 4, 1)


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
async def test_a_watermark_that_lags_behind_a_new_leader(
    cluster: Cluster, log: Log, version: int, code: ErrorCode
) -> None:
    """KIP-207: the latest offset must not go back, so it is not told before the watermark is in this epoch."""
    cluster.manager.partition.epoch_start_offset = 9
    log.at = {100: TimestampOffset(120, 3, 1), 200: TimestampOffset(210, 8, 4)}
    assert (await ask(cluster, version, -1))[0] == code
    assert (await ask(cluster, version, 200))[0] == code
    assert (await ask(cluster, version, 300))[0] == code
    assert (await ask(cluster, version, -1, replica_id=1))[0] == 0
    assert await ask(cluster, version, 100) == (0, 120, 3, 1)
    assert await ask(cluster, version, -2) == (0, -1, 2, 1)


async def test_a_transaction_that_was_open_before_the_epoch_does_not_hold_back_the_answer(
    cluster: Cluster, log: Log
) -> None:
    """The watermark is in this epoch, the last stable offset before it for as long as the transaction is open."""
    cluster.manager.partition.epoch_start_offset = 8
    log.at = {200: TimestampOffset(210, 7, 4)}
    assert await ask(cluster, 7, -1, isolation_level=1) == (0, -1, 6, 4)
    assert await ask(cluster, 7, 200, isolation_level=1) == (0, -1, -1, -1)
    assert await ask(cluster, 7, 300, isolation_level=1) == (0, -1, -1, -1)


async def test_a_follower_answers_the_debugging_consumer_alone(cluster: Cluster, log: Log) -> None:
    cluster.manager.partition.apply(PartitionState(leader=1, replicas=(0, 1), isr=(0, 1), leader_epoch=4))
    assert (await ask(cluster, 7, -1))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await ask(cluster, 7, -1, replica_id=-2) == (0, -1, 10, 4)


async def test_the_clients_epoch_is_judged(cluster: Cluster, log: Log) -> None:
    assert (await ask(cluster, 7, -1, epoch=3))[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert (await ask(cluster, 7, -1, epoch=5))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (replica.UnknownTopicIdError(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (replica.UnknownTopicOrPartitionError(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (storage.StoreOfflineError(), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_errors(cluster: Cluster, error: Exception, code: ErrorCode) -> None:
    cluster.manager.partition = error
    assert await ask(cluster, 7, -1) == (code, -1, -1, -1)
    assert (await ask(cluster, 7, -1, name="nothing"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_partition_that_is_named_twice(cluster: Cluster, log: Log) -> None:
    asked = ListOffsetsPartition(timestamp=-1)
    once_more = SimpleNamespace(topics=[ListOffsetsTopic(name="topic", partitions=[asked, asked])])
    response = await cluster.call(ListOffsetsRequest(replica_id=-1, topics=once_more.topics), 7)
    assert [answer.error_code for answer in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]


async def test_a_topic_that_is_named_twice_is_answered_once(cluster: Cluster, log: Log) -> None:
    asked = [
        ListOffsetsTopic(name="topic", partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
        for index in (0, 1, 0)
    ]
    response = await cluster.call(ListOffsetsRequest(replica_id=-1, topics=asked), 7)
    told = [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in response.topics]
    assert told == [[(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.NONE)]]


async def test_a_broker_without_tiers_finds_nothing_in_them(cluster: Cluster, log: Log) -> None:
    assert await ask(cluster, 9, -5) == (0, -1, -1, -1)
    assert await ask(cluster, 11, -6) == (0, -1, -1, -1)
    assert (await ask(cluster, 10, -6))[0] == ErrorCode.UNSUPPORTED_VERSION
