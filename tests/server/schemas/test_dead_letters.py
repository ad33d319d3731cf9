"""Records that do not fit their schemas go to a dead-letter topic; the others of their batch are appended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.client.schema_registry import SchemaText
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Compression, Record, TimestampType, build_batch, iter_records, parse_batch_header
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.image import NO_LEADER, ConfigResource, ResourceType
from ottla.replica.batch_writer import BatchWriter
from ottla.replica.errors import ReplicaError
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.replica.partition import Role
from ottla.schemas.framing import framed
from tests.clusters import RunCluster
from tests.server.share.test_dead_letter_nodes import until
from tests.servers import Client, RunningNode

Serve = Callable[..., Any]

SETTING = "ottla.schema.validation.dead.letter.topic"
VALIDATED = {"ottla_value_schema_validation": "id", SETTING.replace(".", "_"): "bad"}
PLAIN = "the value does not begin with the id of a schema"
NOW_MS = 1_700_000_000_000


class Schemas:
    """Knows one schema, which is in every subject that a test asks about."""

    async def schema(self, schema_id: int) -> SchemaText | None:
        return SchemaText("AVRO", '"string"') if schema_id == 1 else None

    async def subjects(self, schema_id: int) -> frozenset[str]:
        return frozenset({"t-value", "t-key"})


GOOD = framed(1, b"\x02a")


@pytest.fixture
def serve(serve_node: Serve) -> Serve:
    @asynccontextmanager
    async def serve(**settings: str) -> AsyncIterator[RunningNode]:
        async with serve_node({name.replace("_", "."): value for name, value in settings.items()}) as node:
            node.broker.codecs.look_up_in(Schemas())
            yield node

    return serve


def a_request(topic_id: UUID, batch: bytes, *, index: int = 0, acks: int = -1, **more: Any) -> ProduceRequest:
    data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=index, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data], **more)


def batch_of(*values: bytes | None, **header: Any) -> bytes:
    records = [
        Record(key=b"k%d" % index, value=value, timestamp_ms=NOW_MS + index, headers=[("own", b"%d" % index)])
        for index, value in enumerate(values)
    ]
    return build_batch(records, **header)


async def send(node: RunningNode, topic_id: UUID, *values: bytes | None, index: int = 0, **header: Any) -> Any:
    """The answer to a batch."""
    client = await node.connect()
    response = await client.call(a_request(topic_id, batch_of(*values, **header), index=index), 13)
    return response.responses[0].partition_responses[0]


async def records_of(node: RunningNode, topic_id: UUID, index: int = 0) -> list[Record]:
    """Everything in a partition, as a consumer reads it."""
    return [record for batch in await batches_of(node, topic_id, index) for record in iter_records(batch)]


async def batches_of(node: RunningNode, topic_id: UUID, index: int = 0) -> list[memoryview]:
    asked = FetchPartition(topic_id, index, 0, 1 << 26, -1)
    (fetched,) = await node.broker.replica_manager.fetch(FetchParams(max_bytes=1 << 26), [asked])
    assert fetched.error is None
    data = memoryview(b"" if fetched.records is None else fetched.records.to_bytes())
    fetched.release()
    found = []
    while data:
        size_bytes = parse_batch_header(data).size_bytes
        found.append(data[:size_bytes])
        data = data[size_bytes:]
    return found


def told(letter: Record) -> dict[str, str]:
    """What a letter says of its record."""
    prefix = "__dlq.errors."
    return {name[len(prefix) :]: (value or b"").decode() for name, value in letter.headers if name.startswith(prefix)}


async def alter(node: RunningNode, topic: str, **settings: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    changes = [ConfigChange(name.replace("_", "."), ConfigOperation.SET, value) for name, value in settings.items()]
    assert await node.broker.controller.alter_configs({resource: changes}) == {resource: None}


async def test_the_others_are_appended_where_they_would_be(serve: Serve) -> None:
    async with serve() as node:
        bad = await node.create_topic("bad", 2)
        topic_id = await node.create_topic("t", 2, **VALIDATED)
        answer = await send(node, topic_id, GOOD, b"plain", None, b"")
        assert (answer.error_code, answer.base_offset, answer.record_errors) == (ErrorCode.NONE, 0, [])
        answer = await send(node, topic_id, GOOD, b"again", index=1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        assert (await send(node, topic_id, GOOD)).base_offset == 4
        kept = await records_of(node, topic_id)
        assert [(it.offset, it.value, it.timestamp_ms - NOW_MS) for it in kept] == [
            (0, GOOD, 0), (2, None, 2), (4, GOOD, 0),
        ]  # fmt: skip
        letters = await records_of(node, bad)
        assert [(it.key, it.value, it.timestamp_ms - NOW_MS) for it in letters] == [
            (b"k1", b"plain", 1), (b"k3", b"", 3),
        ]  # fmt: skip
        assert letters[0].headers[0] == ("own", b"1")
        assert told(letters[0]) == {"topic": "t", "partition": "0", "message": PLAIN}
        assert [told(it)["partition"] for it in await records_of(node, bad, 1)] == ["1"]
        assert node.broker.replica_manager.traffic[topic_id].dead_letters == 3


async def test_keys_and_values_are_looked_at_together(serve: Serve) -> None:
    async with serve() as node:
        bad = await node.create_topic("bad")
        topic_id = await node.create_topic("t", **VALIDATED, ottla_key_schema_validation="id")
        assert (await send(node, topic_id, GOOD, b"plain")).error_code == ErrorCode.NONE
        messages = [told(it)["message"] for it in await records_of(node, bad)]
        assert messages == ["the key does not begin with the id of a schema"] * 2
        assert await records_of(node, topic_id) == []


async def test_retries_and_the_sequences_of_an_idempotent_producer(serve: Serve) -> None:
    async with serve() as node:
        bad = await node.create_topic("bad")
        topic_id = await node.create_topic("t", **VALIDATED)
        producer = {"producer_id": 7, "producer_epoch": 2}
        for _ in range(2):
            answer = await send(node, topic_id, b"x", GOOD, b"y", base_sequence=0, **producer)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        answer = await send(node, topic_id, b"z", base_sequence=3, **producer)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 3)
        answer = await send(node, topic_id, b"early", base_sequence=5, **producer)
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        answer = await send(node, topic_id, GOOD, base_sequence=4, **producer)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 4)
        assert [it.offset for it in await records_of(node, topic_id)] == [1, 4]
        # A batch that is there already, or is refused, has no letters.
        letters = await records_of(node, bad)
        assert [it.value for it in letters] == [b"x", b"y", b"z"]
        named = ("producer.id", "producer.epoch", "sequence")
        assert [tuple(told(it)[name] for name in named) for it in letters] == [
            ("7", "2", "0"), ("7", "2", "2"), ("7", "2", "3"),
        ]  # fmt: skip


@pytest.mark.parametrize("codec", list(Compression))
async def test_large_batches_in_every_codec(serve: Serve, codec: Compression) -> None:
    async with serve() as node:
        bad = await node.create_topic("bad", max_message_bytes="20000")
        topic_id = await node.create_topic("t", **VALIDATED)
        values = [GOOD if index % 3 else b"plain" * 20 for index in range(3_000)]
        assert (await send(node, topic_id, *values, compression=codec)).error_code == ErrorCode.NONE
        (batch,) = await batches_of(node, topic_id)
        assert parse_batch_header(batch).compression == codec
        assert [it.offset for it in await records_of(node, topic_id)] == [n for n in range(3_000) if n % 3]
        letters = await batches_of(node, bad)
        assert sum(parse_batch_header(it).record_count for it in letters) == 1_000
        assert max(map(len, letters)) <= 20_000


async def test_a_batch_of_which_nothing_is_left(serve: Serve) -> None:
    async with serve() as node:
        bad = await node.create_topic("bad")
        topic_id = await node.create_topic("t", **VALIDATED)
        answer = await send(node, topic_id, b"a", b"b", compression=Compression.ZSTD)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
        (batch,) = await batches_of(node, topic_id)
        header = parse_batch_header(batch)
        assert (header.record_count, header.next_offset) == (0, 2)
        assert len(await records_of(node, bad)) == 2
        assert (await send(node, topic_id, GOOD)).base_offset == 2


async def test_what_the_log_corrects_in_a_batch(serve: Serve) -> None:
    async with serve() as node:
        await node.create_topic("bad")
        topic_id = await node.create_topic("t", **VALIDATED)
        stamped = TimestampType.LOG_APPEND_TIME
        assert (await send(node, topic_id, GOOD, b"plain", GOOD, timestamp_type=stamped)).error_code == ErrorCode.NONE
        assert [it.timestamp_ms - NOW_MS for it in await records_of(node, topic_id)] == [0, 2]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (None, "it does not exist"),
        ({"ottla_value_schema_validation": "id"}, "it has a schema validation of its own"),
        (UUID(int=1), "it is a mirror of another cluster's topic"),
        ({"cleanup_policy": "compact"}, "records of the batch have no key"),
        ({"max_message_bytes": "100"}, "a letter of "),
    ],
)
async def test_where_letters_cannot_go_the_batch_is_refused(
    serve: Serve, caplog: pytest.LogCaptureFixture, settings: dict[str, str] | UUID | None, why: str
) -> None:
    async with serve() as node:
        if isinstance(settings, UUID):
            await node.broker.controller.create_topic(NewTopic("bad", 1, 1, mirror_of=settings))
        elif settings is not None:
            await node.create_topic("bad", **settings)
        topic_id = await node.create_topic("t", **VALIDATED)
        client = await node.connect()
        batch = build_batch([Record(value=GOOD), Record(value=b"plain")])
        for _ in range(2):
            response = await client.call(a_request(topic_id, batch), 13)
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.INVALID_RECORD
            assert f"; they cannot go to the dead-letter topic bad: {why}" in answer.error_message
            assert [(it.batch_index, it.batch_index_error_message) for it in answer.record_errors] == [(1, PLAIN)]
        assert await batches_of(node, topic_id) == []
        warnings = [it.message for it in caplog.records if it.name == "ottla.server.schemas.dead_letters"]
        assert len([it for it in warnings if why in it]) == len(warnings) == 1


async def test_a_topic_is_not_its_own_dead_letter_topic(serve: Serve) -> None:
    async with serve() as node:
        topic_id = await node.create_topic("t", **VALIDATED | {SETTING.replace(".", "_"): "t"})
        assert (await send(node, topic_id, b"plain")).error_code == ErrorCode.INVALID_RECORD
        assert await batches_of(node, topic_id) == []


async def test_no_letters_where_the_topic_itself_takes_nothing(serve: Serve) -> None:
    async with serve() as node:
        bad = await node.create_topic("bad")
        early = await node.create_topic("early", **VALIDATED, message_timestamp_before_max_ms="1")
        assert (await send(node, early, b"plain")).error_code == ErrorCode.INVALID_TIMESTAMP
        assert await batches_of(node, bad) == []


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> tuple[trio.Event, trio.Event]:
    """The first is set when a letter is to be written; it is written when the second is set."""
    is_due, may_go = trio.Event(), trio.Event()
    write_as_ever = BatchWriter.write

    async def wait(self: BatchWriter, *args: Any, **options: Any) -> None:
        is_due.set()
        await may_go.wait()
        await write_as_ever(self, *args, **options)

    monkeypatch.setattr(BatchWriter, "write", wait)
    return is_due, may_go


async def begin(node: RunningNode, topic_id: UUID, batch: bytes, **more: Any) -> Client:
    client = await node.connect()
    await client.send(a_request(topic_id, batch, **more), 13)
    return client


async def answer_of(client: Client) -> Any:
    _, response = await client.receive(ProduceRequest.API_KEY, 13)
    return response.responses[0].partition_responses[0]


async def test_settings_that_change_while_letters_are_written(
    serve: Serve, held: tuple[trio.Event, trio.Event]
) -> None:
    async with serve() as node:
        await node.create_topic("bad")
        topic_id = await node.create_topic("t", **VALIDATED)
        client = await begin(node, topic_id, batch_of(GOOD, b"plain"))
        await held[0].wait()
        await alter(node, "t", max_message_bytes="2000000")
        held[1].set()
        assert (await answer_of(client)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await batches_of(node, topic_id) == []
        assert (await send(node, topic_id, GOOD, b"plain")).error_code == ErrorCode.NONE


async def test_a_topic_that_is_deleted_while_letters_are_written(
    serve: Serve, held: tuple[trio.Event, trio.Event]
) -> None:
    async with serve() as node:
        bad = await node.create_topic("bad")
        topic_id = await node.create_topic("t", **VALIDATED)
        client = await begin(node, topic_id, batch_of(GOOD, b"plain"))
        await held[0].wait()
        await node.broker.controller.delete_topics([topic_id])
        await until(lambda: topic_id not in node.broker.schema_validation.rules)
        held[1].set()
        assert (await answer_of(client)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert len(await records_of(node, bad)) == 1


async def test_what_follows_on_the_connection_waits_for_the_letters(
    serve: Serve, held: tuple[trio.Event, trio.Event]
) -> None:
    async with serve() as node:
        await node.create_topic("bad")
        topic_id = await node.create_topic("t", **VALIDATED)
        client = await begin(node, topic_id, batch_of(GOOD, b"plain"))
        await client.send(a_request(topic_id, batch_of(None)), 13)
        await held[0].wait()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert await batches_of(node, topic_id) == []
        held[1].set()
        assert [(await answer_of(client)).base_offset for _ in range(2)] == [0, 2]


async def test_who_has_left_while_letters_were_written_gets_nothing_appended(
    serve: Serve, held: tuple[trio.Event, trio.Event]
) -> None:
    async with serve() as node:
        bad = await node.create_topic("bad")
        topic_id = await node.create_topic("t", **VALIDATED)
        client = await begin(node, topic_id, batch_of(GOOD, b"plain"))
        await held[0].wait()
        await trio.aclose_forcefully(client.stream)
        held[1].set()
        log = node.broker.replica_manager.get_partition(bad, 0).log
        await until(lambda: log.high_watermark == 1)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert await batches_of(node, topic_id) == []


async def test_a_node_stops_while_letters_wait(serve: Serve, held: tuple[trio.Event, trio.Event]) -> None:
    with trio.fail_after(30):
        async with serve() as node:
            await node.create_topic("bad")
            topic_id = await node.create_topic("t", **VALIDATED)
            await begin(node, topic_id, batch_of(GOOD, b"plain"))
            await held[0].wait()


def leads(node: RunningNode, topic_id: UUID) -> bool:
    try:
        return node.broker.replica_manager.get_partition(topic_id, 0).role is Role.LEADER
    except ReplicaError:
        return False


async def test_letters_whose_leader_is_another_broker(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        controller = cluster[1].broker.controller
        configs = {name.replace("_", "."): value for name, value in VALIDATED.items()}
        bad = await controller.create_topic(NewTopic("bad", assignments={0: [2, 3], 1: [1, 3]}))
        topic = await controller.create_topic(NewTopic("t", assignments={0: [1], 1: [2]}, configs=configs))
        await cluster.until(lambda image: image.topic_by_id(topic.topic_id) is not None)
        for index, (leader, of_letters) in enumerate([(1, 2), (2, 1)]):
            cluster[leader].broker.codecs.look_up_in(Schemas())
            answer = await send(cluster[leader], topic.topic_id, b"plain", GOOD, index=index)
            assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
            assert [it.offset for it in await records_of(cluster[leader], topic.topic_id, index)] == [1]
            (letter,) = await records_of(cluster[of_letters], bad.topic_id, index)
            assert (letter.value, told(letter)["message"]) == (b"plain", PLAIN)


async def test_the_producer_tries_again_while_a_leader_or_replicas_are_missing(run_cluster: RunCluster) -> None:
    async with run_cluster(2) as cluster:
        node, controller = cluster[1], cluster[1].broker.controller
        node.broker.codecs.look_up_in(Schemas())
        configs = {name.replace("_", "."): value for name, value in VALIDATED.items()}
        two = configs | {SETTING: "here", "min.insync.replicas": "2"}
        bad = await controller.create_topic(NewTopic("bad", assignments={0: [2]}))
        here = await controller.create_topic(NewTopic("here", assignments={0: [1]}))
        topic = await controller.create_topic(NewTopic("t", assignments={0: [1]}, configs=configs))
        other = await controller.create_topic(NewTopic("other", assignments={0: [1, 2]}, configs=two))
        await cluster.stop(2)
        await cluster.until(lambda image: image.topics["bad"].partitions[0].leader == NO_LEADER, 1)
        await until(lambda: node.broker.replica_manager.get_partition(other.topic_id, 0).is_under_min_isr)
        answer = await send(node, topic.topic_id, GOOD, b"plain")
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert answer.error_message == "the dead-letter topic bad cannot be written to: bad-0 has no leader"
        assert await batches_of(node, topic.topic_id) == []
        # What cannot be appended itself has no letters.
        assert (await send(node, other.topic_id, b"plain")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await batches_of(node, here.topic_id) == []
        await cluster.start(2)
        await cluster.until(lambda image: image.topics["bad"].partitions[0].leader == 2, 1)
        # Node 2 may hear of it a little later than node 1.
        await until(lambda: leads(cluster[2], bad.topic_id))
        assert (await send(node, topic.topic_id, GOOD, b"plain")).error_code == ErrorCode.NONE
        assert [it.offset for it in await records_of(node, topic.topic_id)] == [0]
