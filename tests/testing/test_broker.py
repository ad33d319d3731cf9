"""The broker that tests use: topics, records and groups, restarts and resets."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer

from ottla.client.admin.group_state import Coordinator
from ottla.client.client import Client
from ottla.client.connection import BrokerConnection
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.kproto.messages.configs.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.storage.disk import Disk
from ottla.storage.store.message_store import MessageStore
from ottla.testing import Broker, BrokerError, WaitTimeoutError
from tests.group_members import RELEASE, ShareMember, StreamsMember, begin_early, configure, until

Connect = Callable[[Broker], BrokerConnection]


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:

        def connect(broker: Broker) -> BrokerConnection:
            return stack.enter_context(closing(BrokerConnection("127.0.0.1", broker.port, 30)))

        yield connect


def commit(broker: Broker, group: str, topic: str, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])
    with Client([("127.0.0.1", broker.port)]) as client:
        answer = Coordinator(client, 30).call(
            group, request, lambda answer: int(answer.topics[0].partitions[0].error_code), at_most=9
        )
    return int(answer.topics[0].partitions[0].error_code)


def disk_of(broker: Broker) -> Disk:
    thread = broker._thread
    assert thread is not None
    return thread.ready.broker.log_manager.context.disk


def test_records_come_back_as_they_were_produced(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)

    broker.produce("orders", b"\xff", "text", {"a": [1]}, None, key="k", headers={"h": "v"}, timestamp_ms=1234)
    broker.produce("orders", "elsewhere", partition=1)

    keyed = [record for record in broker.records("orders") if record.key == b"k"]
    assert [record.value for record in keyed] == [b"\xff", b"text", b'{"a":[1]}', None]
    assert {record.headers for record in keyed} == {(("h", b"v"),)}
    assert {record.timestamp_ms for record in keyed} == {1234}
    assert keyed[1].text == "text"
    assert keyed[2].json() == {"a": [1]}
    with pytest.raises(TypeError, match="tombstone"):
        keyed[3].json()
    assert [record.text for record in broker.records("orders", partition=1) if record.key is None] == ["elsewhere"]


def test_the_last_records_are_read_without_all_others(broker: Broker) -> None:
    broker.produce("t", *range(1000))
    last, offsets = broker.last_records("t", 2)
    assert [record.json() for record in last] == [998, 999]
    assert offsets == 1000


def test_topics_are_created_listed_and_deleted(broker: Broker) -> None:
    broker.create_topic("a", partitions=2, configs={"retention.ms": 1000})
    broker.produce("b", "x")
    assert broker.topics() == {"a": 2, "b": 1}

    broker.delete_topic("a")
    assert broker.topics() == {"b": 1}
    assert broker.records("a") == []
    with pytest.raises(BrokerError) as refused:
        broker.create_topic("b")
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_it_waits_for_records_of_a_topic_that_is_still_to_come(broker: Broker) -> None:
    started = threading.Event()

    def produce() -> None:
        started.wait(120)
        broker.produce("late", 1, 2, 3)

    thread = threading.Thread(target=produce)
    thread.start()
    started.set()
    assert [record.json() for record in broker.wait_for("late", 3)] == [1, 2, 3]
    thread.join()


def test_what_did_not_come_in_time_is_an_assertion_that_says_what_came(broker: Broker) -> None:
    broker.produce("few", "only")

    with pytest.raises(AssertionError, match=r"few has 1 of 2 records after 0\.05 s; the last is .*only"):
        broker.wait_for("few", 2, timeout_s=0.05)
    with pytest.raises(WaitTimeoutError, match="none has 0 of 1"):
        broker.wait_for("none", timeout_s=0.02)


async def test_it_waits_on_trio(broker: Broker) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, lambda: broker.produce("t", "x"))
        assert len(await broker.wait_for_async("t")) == 1
    with pytest.raises(RuntimeError, match="await wait_for_async"):
        broker.wait_for("t")


def test_it_waits_on_asyncio(broker: Broker) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="await wait_for_async"):
            broker.wait_for("t")
        waiting = asyncio.create_task(broker.wait_for_async("t"))
        await asyncio.to_thread(broker.produce, "t", "x")
        assert len(await waiting) == 1

    asyncio.run(main())


def test_groups_are_shown_with_offsets_and_lag(broker: Broker) -> None:
    broker.produce("t", 1, 2, 3)
    assert broker.groups() == {}

    assert commit(broker, "g", "t", 1) == ErrorCode.NONE

    group = broker.groups()["g"]
    assert (group.state, group.offsets, group.lag, group.members) == ("Empty", {("t", 0): 1}, {("t", 0): 2}, {})


def test_a_restart_keeps_the_port_and_the_data(broker: Broker) -> None:
    broker.produce("t", "before")
    address = broker.bootstrap

    broker.restart()

    assert broker.bootstrap == address
    broker.produce("t", "after")
    assert [record.text for record in broker.records("t")] == ["before", "after"]


def test_a_stopped_broker_answers_nobody_and_can_be_started_again(broker: Broker) -> None:
    broker.produce("t", "x")
    broker.stop()
    assert not broker.is_running
    with pytest.raises(BrokerError):
        broker.records("t")
    broker.start()
    assert broker.is_running
    assert len(broker.records("t")) == 1


def test_data_in_a_folder_is_there_for_the_next_broker(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.produce("t", "kept")
    with Broker(data_dir=tmp_path) as broker:
        assert [record.text for record in broker.records("t")] == ["kept"]


def test_wrong_settings_are_told_where_they_are_made() -> None:
    with pytest.raises(BrokerError, match=r"num\.partitions"), Broker(config={"num.partitions": "many"}):
        pytest.fail("it started")


def test_a_port_can_be_asked_for_and_is_free_afterwards() -> None:
    with Broker() as broker:
        port = broker.port
        with pytest.raises(BrokerError, match="cannot listen"), Broker(port=port):
            pytest.fail("it started")
    with Broker(port=port) as broker:
        assert broker.port == port


def test_memory_is_limited() -> None:
    with Broker(memory_bytes=200_000) as broker:
        with pytest.raises(BrokerError) as refused:
            broker.produce("t", *[b"x" * 50_000] * 10)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


class TestReset:
    def test_topics_groups_and_their_offsets_are_gone(self, broker: Broker) -> None:
        broker.create_topic("t", partitions=5)
        broker.produce("t", *range(20))
        commit(broker, "g", "t", 1)

        broker.reset()

        assert broker.topics() == {}
        assert broker.groups() == {}
        broker.produce("t", "new")
        assert [(record.offset, record.text) for record in broker.records("t")] == [(0, "new")]

    def test_share_groups_and_streams_groups_begin_anew(self) -> None:
        settings = {f"group.{kind}.assignment.interval.ms": "0" for kind in ("share", "streams")}
        settings |= {"group.streams.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
        with Broker(config={**settings, "share.coordinator.state.topic.num.partitions": "1"}) as broker:
            for _ in range(2):
                broker.produce("t", *range(3))
                with Client([("127.0.0.1", broker.port)]) as client:
                    begin_early(client, "shared")
                    member = ShareMember(client, "shared", "t")
                    # Neither what was released nor what was held is known after a reset.
                    assert member.acquire() == [(0, 2, 1)]
                    member.acknowledge(0, 0, RELEASE)
                    assert member.acquire() == [(0, 0, 2)]
                    StreamsMember(client, "streaming", "t")
                kinds = {group.name: (group.protocol, group.state) for group in broker.groups().values()}
                assert kinds == {"shared": ("share", "Stable"), "streaming": ("streams", "Stable")}

                broker.reset()

                assert broker.groups() == {}
                assert broker.topics() == {}

    def test_a_fetch_that_waits_is_told_that_its_topic_is_unknown(self, broker: Broker, connect: Connect) -> None:
        broker.create_topic("t")
        with Client([("127.0.0.1", broker.port)]) as client:
            topic_id = client.topic("t").topic_id
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        fetch = FetchRequest(
            max_wait_ms=30_000, min_bytes=1, topics=[FetchTopic(topic="t", topic_id=topic_id, partitions=[asked])]
        )
        by_id, by_name = connect(broker), connect(broker)
        by_id.send(fetch)
        by_name.send(fetch, at_most=12)

        broker.reset()

        answers = [connection.receive() for connection in (by_id, by_name)]
        codes = [answer.responses[0].partitions[0].error_code for answer in answers]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    def test_a_member_that_still_heartbeats_is_unknown(self, broker: Broker, connect: Connect) -> None:
        connection = connect(broker)
        broker.create_topic("t")
        commit(broker, "g", "t", 0)

        broker.reset()

        codes = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        while codes == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}:
            codes = {connection.call(HeartbeatRequest(group_id="g", generation_id=1, member_id="m")).error_code}
        assert codes == {ErrorCode.UNKNOWN_MEMBER_ID}

    def test_nothing_of_a_deleted_topic_stays_in_memory(self, broker: Broker) -> None:
        for _ in range(20):
            broker.produce("t", *range(10))
            broker.reset()
        gc.collect()
        stores = [it for it in gc.get_objects() if isinstance(it, MessageStore) and it.context.disk is disk_of(broker)]
        assert len(stores) <= 1  # the last one, to whose end a task may still be on its way

    def test_quotas_are_gone(self, broker: Broker, connect: Connect) -> None:
        connection = connect(broker)
        entity = [EntityData(entity_type="user", entity_name="u")]
        entry = EntryData(entity=entity, ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)])
        assert connection.call(AlterClientQuotasRequest(entries=[entry])).entries[0].error_code == ErrorCode.NONE

        broker.reset()

        everything = DescribeClientQuotasRequest(components=[ComponentData(entity_type="user", match_type=2)])
        assert connection.call(everything).entries in ([], None)

    def test_a_consumer_that_stays_reads_on_when_its_topic_is_there_again(self, broker: Broker) -> None:
        broker.produce("t", "before")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 100,
                "reconnect.backoff.max.ms": 100,
            }
        )
        consumer.subscribe(["t"])

        def next_value() -> bytes | None:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    return message.value()
            return None

        try:
            assert next_value() == b"before"
            broker.reset()
            broker.produce("t", "after")
            assert next_value() == b"after"
        finally:
            consumer.close()


class TestProcess:
    def test_it_is_killed_and_comes_back_with_what_it_acknowledged(self) -> None:
        with Broker(process=True) as broker:
            broker.produce("t", *range(100))
            broker.kill()
            assert not broker.is_running
            broker.start()
            assert [record.json() for record in broker.records("t")] == list(range(100))
            broker.reset()
            assert broker.topics() == {}

    def test_the_settings_of_a_shell_do_not_reach_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTTLA_NUM_PARTITIONS", "7")
        monkeypatch.setenv("OTTLA_LISTENERS", "nonsense")
        for process in (False, True):
            with Broker(process=process) as broker:
                broker.produce("t", "one")
                assert broker.topics() == {"t": 1}

    def test_what_it_cannot_do_it_says(self) -> None:
        with Broker(process=True) as broker:
            with pytest.raises(BrokerError, match="in this process"):
                _ = broker.faults
            with pytest.raises(BrokerError, match="clock"):
                _ = broker.clock
        with Broker() as broker, pytest.raises(BrokerError, match="process=True"):
            broker.kill()

    def test_why_it_did_not_start_is_told(self) -> None:
        wrong = {"num.partitions": "many"}
        with pytest.raises(BrokerError, match=r"num\.partitions"), Broker(process=True, config=wrong):
            pytest.fail("it started")

    def test_frozen_it_answers_nothing(self) -> None:
        with Broker(process=True) as broker:
            broker.produce("t", "x")
            with broker.frozen():
                connection = threading.Thread(target=broker.records, args=["t"])
                connection.start()
                connection.join(0.05)
                assert connection.is_alive()
            connection.join(120)
            assert not connection.is_alive()


def test_locks_and_deliveries_of_a_share_group_end_in_milliseconds() -> None:
    """A record that nobody acknowledges goes to the dead-letter queue after five deliveries of 30 s each."""
    settings = {
        "group.share.assignment.interval.ms": "0",
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "errors.deadletterqueue.auto.create.topics.enable": "true",
    }
    with Broker(config=settings) as broker, Client([("127.0.0.1", broker.port)]) as client:
        broker.produce("orders", "bad")
        begin_early(client, "billing")
        configure(client, "billing", "errors.deadletterqueue.topic.name", "dlq.orders")
        configure(client, "billing", "errors.deadletterqueue.copy.record.enable", "true")
        member = ShareMember(client, "billing", "orders")
        for delivery in range(1, 6):
            assert member.acquire() == [(0, 0, delivery)]
            broker.clock.advance(31)
            member.beat()
        letter = until(
            lambda: next(iter(broker.records("dlq.orders")), None) if "dlq.orders" in broker.topics() else None
        )
        headers = {name.rpartition("errors.")[2]: value for name, value in letter.headers}
        assert (letter.text, headers["topic"], headers["delivery.count"]) == ("bad", b"orders", b"5")
        assert headers["message"] == b"Offset delivery count exceeded the threshold."
