"""Fetch: how requests become reads, results become answers, and memory comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Record, build_batch, iter_batches
from ottla.kproto.schema import ZERO_UUID
from ottla.replica import errors as replica
from ottla.replica.fetch import FetchResult
from ottla.replica.partition import EpochEndOffset, Isolation
from ottla.storage import errors as storage
from ottla.storage.memory.iobuf import IOBuf

Cluster = Any
Serve = Callable[..., Any]


def request(topic: Any, version: int, *partitions: int, **options: Any) -> FetchRequest:
    asked = [
        FetchPartition(
            partition=index,
            fetch_offset=options.get("offset", 0),
            partition_max_bytes=options.get("partition_max_bytes", 1 << 20),
            current_leader_epoch=options.get("current_leader_epoch", -1),
        )
        for index in partitions or (0,)
    ]
    named = {"topic_id": topic.topic_id} if version >= 13 else {"topic": topic.name}
    values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20} | options.get("request", {})
    return FetchRequest(topics=[FetchTopic(partitions=asked, **named)], **values)


def only(response: FetchResponse) -> Any:
    ((answer,),) = [topic.partitions for topic in response.responses]
    return answer


def found(**fields: Any) -> FetchResult:
    result = FetchResult(high_watermark=9, last_stable_offset=8, log_start_offset=3)
    for name, value in fields.items():
        setattr(result, name, value)
    return result


def chain(*pieces: bytes) -> IOBuf:
    records = IOBuf()
    for piece in pieces:
        records.append(piece)
    return records


@pytest.mark.parametrize(("said", "meant"), [(-2, -1), (-1, -1), (0, 0), (7, 7)])
async def test_a_negative_leader_epoch_is_none(cluster: Cluster, said: int, meant: int) -> None:
    cluster.manager.fetch_result = found
    await cluster.call(request(cluster.topic, 18, current_leader_epoch=said), 18)
    ((_, (asked,)),) = cluster.manager.fetched
    assert asked.current_leader_epoch == meant


@pytest.mark.parametrize("version", range(4, 19))
async def test_records_and_offsets(cluster: Cluster, version: int) -> None:
    cluster.manager.fetch_result = lambda: found(records=chain(b"some ", b"records"))
    response = await cluster.call(request(cluster.topic, version), version)
    answer = only(response)
    assert bytes(answer.records) == b"some records"
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 9, 8)
    assert answer.log_start_offset == (3 if version >= 5 else -1)
    assert (answer.aborted_transactions, answer.preferred_read_replica) == (None, -1)
    (topic,) = response.responses
    assert (topic.topic, topic.topic_id) == (("", cluster.topic.topic_id) if version >= 13 else ("topic", ZERO_UUID))
    assert len(cluster.context.held) == 1
    ((_, (asked,)),) = cluster.manager.fetched
    assert asked.topic_id == cluster.topic.topic_id


async def test_no_records_are_empty_and_never_null(cluster: Cluster) -> None:
    cluster.manager.fetch_result = found
    for version in (4, 12, 18):
        records = only(await cluster.call(request(cluster.topic, version), version)).records
        assert records is not None
        assert bytes(records) == b""
    assert cluster.context.held == []


async def test_aborted_transactions(cluster: Cluster) -> None:
    cluster.manager.fetch_result = lambda: found(aborted_transactions=[(7, 1), (8, 2)])
    asked = request(cluster.topic, 11, request={"isolation_level": 1})
    answer = only(await cluster.call(asked, 11))
    assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(7, 1), (8, 2)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (storage.OffsetOutOfRangeError(1, 2, 3), ErrorCode.OFFSET_OUT_OF_RANGE),
        (storage.StoreOfflineError(), ErrorCode.KAFKA_STORAGE_ERROR),
        (storage.CorruptLogError("damaged"), ErrorCode.CORRUPT_MESSAGE),
        (replica.UnknownLeaderEpochError(), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (replica.FencedLeaderEpochError(), ErrorCode.FENCED_LEADER_EPOCH),
        (replica.NotLeaderError(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (replica.UnknownTopicOrPartitionError(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_errors(cluster: Cluster, error: Exception, code: ErrorCode) -> None:
    cluster.manager.fetch_result = lambda: FetchResult(error)
    answer = only(await cluster.call(request(cluster.topic, 12), 12))
    assert (answer.error_code, bytes(answer.records)) == (code, b"")
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)


@pytest.mark.parametrize(
    ("version", "code"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_an_unknown_id_is_one_only_where_ids_are_spoken(cluster: Cluster, version: int, code: ErrorCode) -> None:
    cluster.manager.fetch_result = lambda: FetchResult(replica.UnknownTopicIdError())
    cluster.topic = type(cluster.topic)("nothing", uuid4(), ())
    assert only(await cluster.call(request(cluster.topic, version), version)).error_code == code


@pytest.mark.parametrize("error", [replica.NotLeaderError(), replica.FencedLeaderEpochError()])
@pytest.mark.parametrize("version", [15, 16, 18])
async def test_the_leader_is_named(cluster: Cluster, version: int, error: Exception) -> None:
    cluster.manager.fetch_result = lambda: FetchResult(error)
    response = await cluster.call(request(cluster.topic, version, 0, 0), version)
    answer = response.responses[0].partitions[0]
    hint = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
    endpoints = [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
    assert (hint, endpoints) == (((1, 7), [(1, "neighbour", 9093, "r1")]) if version >= 16 else ((-1, -1), []))


async def test_a_follower_is_told_no_addresses(cluster: Cluster) -> None:
    cluster.manager.fetch_result = lambda: FetchResult(replica.NotLeaderError())
    asked = request(cluster.topic, 18)
    asked.replica_state.replica_id = 2
    response = await cluster.call(asked, 18)
    assert response.responses[0].partitions[0].current_leader.leader_id == 1
    assert response.node_endpoints == []


async def test_a_divergence_is_told(cluster: Cluster) -> None:
    cluster.manager.fetch_result = lambda: found(diverging_epoch=EpochEndOffset(2, 5))
    answer = only(await cluster.call(request(cluster.topic, 12), 12))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (2, 5)
    assert answer.aborted_transactions is None


@pytest.mark.parametrize(
    ("version", "options", "isolation", "from_follower"),
    [
        (10, {}, Isolation.HIGH_WATERMARK, False),
        (11, {}, Isolation.HIGH_WATERMARK, True),
        (11, {"isolation_level": 1}, Isolation.TXN_COMMITTED, True),
        (14, {"replica_id": 1, "isolation_level": 1}, Isolation.LOG_END, False),
        (15, {"replica_state": ReplicaState(replica_id=1)}, Isolation.LOG_END, False),
        (15, {"replica_state": ReplicaState(replica_id=-1)}, Isolation.HIGH_WATERMARK, True),
    ],
)
async def test_who_reads_up_to_where(
    cluster: Cluster, version: int, options: dict[str, Any], isolation: Isolation, from_follower: bool
) -> None:
    cluster.manager.fetch_result = found
    await cluster.call(request(cluster.topic, version, request=options), version)
    ((params, _),) = cluster.manager.fetched
    assert params.isolation is isolation
    assert params.may_read_from_follower is from_follower


async def test_the_limits_are_bounded_by_the_brokers(cluster: Cluster) -> None:
    cluster.manager.fetch_result = found
    limits = {"max_bytes": 0x7FFFFFFF, "min_bytes": 0x7FFFFFFF}
    await cluster.call(request(cluster.topic, 12, request=limits), 12)
    ((params, _),) = cluster.manager.fetched
    assert params.max_bytes == params.min_bytes == cluster.broker.config.fetch_max_bytes


async def test_a_name_means_the_topic_that_has_it_now(cluster: Cluster) -> None:
    cluster.manager.fetch_result = found
    first = await cluster.call(request(cluster.topic, 12, request={"session_epoch": 0}), 12)
    again = type(cluster.topic)("topic", uuid4(), cluster.topic.partitions)
    image = cluster.broker.metadata
    cluster.broker.metadata = type(image)(topics=image.topics.set("topic", again))
    await cluster.call(FetchRequest(session_id=first.session_id, session_epoch=1), 12)
    asked: list[UUID] = [partitions[0].topic_id for _, partitions in cluster.manager.fetched]
    assert asked[-1] == again.topic_id


@pytest.mark.parametrize(("session_id", "epoch", "code"), [(99, 4, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)])
async def test_an_error_of_the_session_is_the_whole_answer(
    cluster: Cluster, session_id: int, epoch: int, code: ErrorCode
) -> None:
    asked = request(cluster.topic, 12, request={"session_id": session_id, "session_epoch": epoch})
    response = await cluster.call(asked, 12)
    assert (response.error_code, response.session_id, response.responses) == (code, 0, [])
    assert cluster.manager.fetched == []


# On a whole node ------------------------------------------------------------------------------------------------------


async def produce(client: Any, topic: str, value: bytes = b"value", partition: int = 0) -> None:
    batch = build_batch([Record(value=value, timestamp_ms=1_700_000_000_000)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    response = await client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


class Named:
    """A topic by its name and id."""

    def __init__(self, name: str, topic_id: UUID) -> None:
        self.name = name
        self.topic_id = topic_id


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the node's tasks run until the condition holds, ten seconds at most."""
    with trio.fail_after(10):
        while not condition():
            await trio.lowlevel.checkpoint()


async def make_topic(node: Any, partitions: int = 1) -> Named:
    return Named("topic", await node.create_topic("topic", partitions))


async def test_a_waiting_fetch_is_answered_by_the_next_produce(serve_node: Serve) -> None:
    async with serve_node() as node:
        topic = await make_topic(node)
        consumer, producer = await node.connect(), await node.connect()
        with trio.fail_after(10):
            await consumer.send(request(topic, 12, request={"max_wait_ms": 60_000}), 12)
            await produce(producer, "topic")
            _, response = await consumer.receive(FetchRequest.API_KEY, 12)
        assert len(list(iter_batches(only(response).records))) == 1
        purgatory = node.broker.replica_manager.fetch_purgatory
        assert (purgatory.watching, purgatory.watched_keys) == (0, 0)


async def test_shutdown_ends_a_waiting_fetch(serve_node: Serve) -> None:
    async with serve_node() as node:
        topic = await make_topic(node)
        client = await node.connect()
        await client.send(request(topic, 12, request={"max_wait_ms": 60_000}), 12)
        await eventually(lambda: node.broker.replica_manager.fetch_purgatory.watching == 1)
        with trio.fail_after(5):
            node.node.stop()
            _, response = await client.receive(FetchRequest.API_KEY, 12)
        assert only(response).error_code == ErrorCode.NONE


async def test_memory_of_responses_comes_back_also_from_clients_that_leave(serve_node: Serve) -> None:
    async with serve_node() as node:
        topic = await make_topic(node)
        producer = await node.connect()
        for _ in range(8):
            await produce(producer, "topic", value=bytes(500_000))
        asked = request(topic, 12, request={"max_bytes": 50_000_000}, partition_max_bytes=50_000_000)
        reader = await node.connect()
        assert len(only(await reader.call(asked, 12)).records) > 4_000_000
        leaver = await node.connect()
        await leaver.send(asked, 12)
        await leaver.stream.receive_some(1)
        await trio.aclose_forcefully(leaver.stream)
        budget = node.broker.replica_manager._response_budget
        await eventually(lambda: budget.used_bytes == 0)


async def test_a_client_that_never_reads_does_not_stop_the_others(serve_node: Serve) -> None:
    async with serve_node({"ottla.memory.budget.bytes": "16777216"}) as node:
        topic = await make_topic(node)
        producer = await node.connect()
        for _ in range(12):
            await produce(producer, "topic", value=bytes(900_000))
        asked = request(topic, 12, request={"max_bytes": 50_000_000}, partition_max_bytes=50_000_000)
        for _ in range(3):
            silent = await node.connect()
            await silent.send(asked, 12)
        budget = node.broker.replica_manager._response_budget
        with trio.fail_after(10):
            await eventually(lambda: budget.used_bytes > budget.limit_bytes // 2)
            reader = await node.connect()
            answer = only(await reader.call(asked, 12))
            assert len(answer.records) > 900_000
            await produce(producer, "topic")


async def test_who_is_beyond_its_quota_is_told_nothing_and_gets_no_session(serve_node: Serve) -> None:
    async def limit(rate: float | None) -> None:
        await node.broker.controller.alter_client_quotas({(("client-id", None),): {"consumer_byte_rate": rate}})

    async def fetch(session_id: int, epoch: int) -> FetchResponse:
        client = await node.connect()  # the connection of who was told to wait is not read
        asked = request(topic, 12, *(() if epoch else (0,)), request={"session_epoch": epoch, "session_id": session_id})
        answered: FetchResponse = await client.call(asked, 12)
        return answered

    async with serve_node() as node:
        topic = await make_topic(node)
        producer = await node.connect()
        await produce(producer, "topic")
        await limit(1.0)
        throttled = await fetch(0, 0)
        assert (throttled.session_id, throttled.responses) == (0, [])
        assert throttled.throttle_time_ms > 0
        assert len(node.broker.replica_manager.fetch_sessions) == 0

        await limit(None)
        session_id = (await fetch(0, 0)).session_id
        assert session_id != 0
        await produce(producer, "topic")
        await limit(1.0)
        throttled = await fetch(session_id, 1)
        assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, session_id, [])
        await limit(None)
        assert only(await fetch(session_id, 2)).high_watermark == 2


async def test_a_fetch_asks_for_no_more_than_its_quota_can_ever_let_through(serve_node: Serve) -> None:
    """Or it would be answered without records each time, however long the client rests in between."""
    async with serve_node() as node:
        topic = await make_topic(node)
        client = await node.connect()
        for _ in range(10):
            await produce(client, "topic", value=bytes(10_000))
        await node.broker.controller.alter_client_quotas({(("client-id", None),): {"consumer_byte_rate": 4_000.0}})
        asked = request(
            topic, 12, request={"max_bytes": 50_000_000, "min_bytes": 100_000}, partition_max_bytes=50_000_000
        )
        answer = only(await client.call(asked, 12))
        assert 30_000 < len(answer.records) <= 40_000  # what all windows of the rate but the present one hold


async def test_partitions_get_their_share_in_turn(serve_node: Serve) -> None:
    """With room for one partition a time, a session goes round all of them."""
    async with serve_node() as node:
        topic = await make_topic(node, partitions=3)
        client = await node.connect()
        for partition in range(3):
            await produce(client, "topic", value=bytes(1000), partition=partition)
        limits = {"max_bytes": 1, "session_epoch": 0}
        response = await client.call(request(topic, 12, 0, 1, 2, request=limits), 12)
        served = [[p.partition_index for p in response.responses[0].partitions if len(p.records)]]
        for epoch in (1, 2, 3):
            asked = FetchRequest(
                max_wait_ms=0, min_bytes=1, max_bytes=1, session_id=response.session_id, session_epoch=epoch
            )
            following = await client.call(asked, 12)
            served.append([p.partition_index for t in following.responses for p in t.partitions if len(p.records)])
        # The full fetch that begins the session does not change its order yet.
        assert served == [[0], [0], [1], [2]]
