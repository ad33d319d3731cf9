"""Produce: how requests become appends, and results become answers."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import trio

from ottla.kproto import codec, headers
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.kproto.records import Record, build_batch
from ottla.replica import errors as replica
from ottla.replica.append import AppendResult, TopicIdPartition
from ottla.runtime.errors import CloseConnectionError
from ottla.settings.config import BrokerConfig
from ottla.storage import errors as storage
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.store.block_writer import BlockWriter

Cluster = Any
Serve = Callable[..., Any]

BATCH = build_batch([Record(value=b"value", timestamp_ms=1_700_000_000_000)])


def request(topic: Any, version: int, *partitions: int, **options: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=options.get("records", BATCH)) for index in partitions or (0,)]
    named = {"topic_id": topic.topic_id} if version >= 13 else {"name": topic.name}
    return ProduceRequest(
        acks=options.get("acks", -1),
        timeout_ms=options.get("timeout_ms", 1234),
        topic_data=[TopicProduceData(partition_data=data, **named)],
    )


def only(response: ProduceResponse) -> Any:
    ((answer,),) = [topic.partition_responses for topic in response.responses]
    return answer


@pytest.mark.parametrize("version", range(3, 14))
async def test_what_is_appended(cluster: Cluster, version: int) -> None:
    cluster.manager.append_result = AppendResult(base_offset=5, last_offset=5, log_append_time_ms=9, log_start_offset=2)
    answer = only(await cluster.call(request(cluster.topic, version, acks=1), version))
    assert (answer.index, answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 0, 5, 9)
    assert answer.log_start_offset == (2 if version >= 5 else -1)
    (asked,) = cluster.manager.appended
    ((key, records),) = asked["entries"].items()
    assert key == TopicIdPartition(cluster.topic.topic_id, 0)
    assert bytes(records.view) == BATCH
    assert (asked["required_acks"], asked["timeout_ms"], asked["internal_topics_allowed"]) == (1, 1234, False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (replica.NotLeaderError(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (replica.NotEnoughReplicasError(), ErrorCode.NOT_ENOUGH_REPLICAS),
        (replica.NotEnoughReplicasAfterAppendError(), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (replica.RequestTimedOutError(), ErrorCode.REQUEST_TIMED_OUT),
        (replica.InternalTopicError(), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (storage.StoreOfflineError(), ErrorCode.KAFKA_STORAGE_ERROR),
        (storage.RecordTooLargeError(), ErrorCode.MESSAGE_TOO_LARGE),
        (storage.CorruptBatchError(), ErrorCode.CORRUPT_MESSAGE),
        (storage.OutOfOrderSequenceError(), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (storage.InvalidProducerEpochError(), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_what_is_refused(cluster: Cluster, error: Exception, code: ErrorCode) -> None:
    cluster.manager.append_result = AppendResult(error)
    answer = only(await cluster.call(request(cluster.topic, 9), 9))
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (code, -1, -1)
    assert answer.error_message is None
    with pytest.raises(CloseConnectionError, match=code.name):
        await cluster.call(request(cluster.topic, 9, acks=0), 9)


async def test_a_refused_record_is_explained(cluster: Cluster) -> None:
    cluster.manager.append_result = AppendResult(storage.InvalidRecordError("no keys", [(2, "has no key")]))
    answer = only(await cluster.call(request(cluster.topic, 8), 8))
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_RECORD, "no keys")
    assert [(e.batch_index, e.batch_index_error_message) for e in answer.record_errors] == [(2, "has no key")]
    before = only(await cluster.call(request(cluster.topic, 7), 7))
    assert (before.error_code, before.error_message, before.record_errors) == (ErrorCode.INVALID_RECORD, None, [])


@pytest.mark.parametrize("version", [9, 10, 13])
async def test_the_leader_is_named(cluster: Cluster, version: int) -> None:
    """KIP-951: one endpoint for the leader of however many partitions."""
    cluster.manager.append_result = AppendResult(replica.NotLeaderError())
    one, image = cluster.topic, cluster.broker.metadata
    two = type(one)(one.name, one.topic_id, one.partitions * 2)
    cluster.broker.metadata = replace(
        image, topics=image.topics.set(one.name, two), topics_by_id=image.topics_by_id.set(one.topic_id, two)
    )
    response = await cluster.call(request(two, version, 0, 1), version)
    hints = [
        (p.current_leader.leader_id, p.current_leader.leader_epoch)
        for t in response.responses
        for p in t.partition_responses
    ]
    endpoints = [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]
    if version < 10:
        assert (hints, endpoints) == ([(-1, -1)] * 2, [])
    else:
        assert (hints, endpoints) == ([(1, 7)] * 2, [(1, "neighbour", 9093, "r1")])


@pytest.mark.parametrize(
    ("version", "code"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_a_topic_that_is_deleted_meanwhile(cluster: Cluster, version: int, code: ErrorCode) -> None:
    cluster.manager.append_result = AppendResult(replica.UnknownTopicIdError())
    assert only(await cluster.call(request(cluster.topic, version), version)).error_code == code


async def test_what_cannot_be_appended_is_never_asked_for(cluster: Cluster) -> None:
    cluster.topic = type(cluster.topic)("nothing", uuid4(), ())
    for version, code in ((9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)):
        answer = only(await cluster.call(request(cluster.topic, version), version))
        assert (answer.error_code, answer.base_offset) == (code, -1)
    assert cluster.manager.appended == []


async def test_good_partitions_are_appended_beside_bad_ones(cluster: Cluster) -> None:
    cluster.manager.append_result = AppendResult(base_offset=1)
    response = await cluster.call(request(cluster.topic, 9, 0, 1), 9)
    answers = response.responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("client_id", ["__admin_client", "test"])
@pytest.mark.parametrize("writable", ["true", "false"])
async def test_who_may_write_to_internal_topics(cluster: Cluster, client_id: str, writable: str) -> None:
    """Who calls itself as Kafka's own admin client does, and only where the operator has allowed it."""
    cluster.broker.config = BrokerConfig({"ottla.internal.topics.writable": writable})
    cluster.manager.append_result = AppendResult(base_offset=0)
    await cluster.call(request(cluster.topic, 9), 9, client_id=client_id)
    allowed = cluster.manager.appended[0]["internal_topics_allowed"]
    assert allowed == (client_id == "__admin_client" and writable == "true")


async def test_no_acks_no_answer(cluster: Cluster) -> None:
    cluster.manager.append_result = AppendResult(base_offset=0)
    assert await cluster.call(request(cluster.topic, 9, acks=0), 9) is None


# On a whole node ------------------------------------------------------------------------------------------------------


async def make_topic(node: Any) -> Any:
    return SimpleNamespace(name="topic", topic_id=await node.create_topic("topic"))


async def test_pipelined_requests_are_stored_and_answered_in_order(serve_node: Serve) -> None:
    async with serve_node() as node:
        topic = await make_topic(node)
        client = await node.connect()
        sent = [await client.send(request(topic, 9), 9) for _ in range(50)]
        for offset, correlation_id in enumerate(sent):
            received, response = await client.receive(ProduceRequest.API_KEY, 9)
            assert received == correlation_id
            assert only(response).base_offset == offset


class Room:
    """Whether stores have room; shut at first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_there = trio.Event()
        self.waiting = trio.Event()
        wait_for_room = self._wait
        monkeypatch.setattr(BlockWriter, "has_room", property(lambda _: self._is_there.is_set()))
        monkeypatch.setattr(BlockWriter, "wait_for_room", lambda _: wait_for_room())

    async def _wait(self) -> None:
        self.waiting.set()
        await self._is_there.wait()

    def open(self) -> None:
        self._is_there.set()


@pytest.mark.parametrize("acks", [-1, 1, 0])
async def test_what_a_producer_has_given_up_while_there_was_no_room_is_not_written(
    serve_node: Serve, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    """Neither the request that waits nor those behind it. With acks=0 nobody ever waits, and nothing is given up."""
    async with serve_node() as node:
        topic = await make_topic(node)
        room = Room(monkeypatch)
        client = await node.connect()
        for _ in range(3):
            await client.send(request(topic, 9, acks=acks, timeout_ms=600_000), 9)
        await room.waiting.wait()
        connections = node.broker.listeners._connections
        (connection,) = connections
        await client.stream.aclose()
        while not connection._transport.has_lost_peer:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.001)
        room.open()
        while connections:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.001)
        log = node.broker.log_manager.get_log(topic.topic_id, 0)
        assert log.log_end_offset == (0 if acks else 3)


async def test_a_disk_that_fails_is_never_acknowledged(serve_node: Serve) -> None:
    disk = SimulatedDisk()
    async with serve_node({"ottla.metadata.store": "memory"}, disk=disk, keeps_memory=True) as node:
        topic = await make_topic(node)
        client = await node.connect()
        assert only(await client.call(request(topic, 9), 9)).error_code == ErrorCode.NONE
        disk.faults.add(Fault(FaultKind.ERROR, frozenset({"pwritev"}), errno=errno.EIO))
        for _ in range(2):
            answer = only(await client.call(request(topic, 9), 9))
            assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_a_name_is_no_permission_to_write_what_a_coordinator_reads(serve_node: Serve, name: str) -> None:
    """One record that cannot be read would keep a coordinator's partition from being loaded ever again."""
    async with serve_node() as node:
        topic = await node.broker.controller.ensure_topic(name)
        client = await node.connect()

        async def produce() -> ErrorCode:
            asked = request(topic, 12, records=build_batch([Record(-1, 1_700_000_000_000, b"?", b"?")]))
            head = headers.build_request_header(asked.API_KEY, 12, 1, "__admin_client")
            await client.send_frame(head + codec.build(asked, 12))
            _, response = await client.receive(asked.API_KEY, 12)
            return ErrorCode(only(response).error_code)

        assert await produce() == ErrorCode.INVALID_TOPIC_EXCEPTION
        partition = node.broker.replica_manager.get_partition(topic.topic_id, 0)
        assert partition.log.log_end_offset == 0


async def test_concurrent_producers_share_flushes(serve_node: Serve) -> None:
    """Group commit without a timer: what arrives during a write leaves with the next one."""
    async with serve_node() as node:
        topic = await make_topic(node)
        bases: list[int] = []

        async def produce() -> None:
            client = await node.connect()
            for _ in range(10):
                bases.append(only(await client.call(request(topic, 9), 9)).base_offset)

        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(produce)
        assert sorted(bases) == list(range(100))
