"""Share groups with the share consumers of Java, librdkafka and franz-go, on Ottla and on Apache Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import BEGINNING, AdminClient, Client, Record
from compat_tests.clients.confluent_share import ConfluentShareConsumer
from compat_tests.clients.franz_share import FranzGoShareConsumer
from compat_tests.clients.java_client import JavaDriver
from compat_tests.clients.java_share import Delivered, JavaShareConsumer
from compat_tests.java.tools import Done, JavaTools
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

pytestmark = pytest.mark.java

GROUP_RESOURCE = 32
# It ends in the midst of four rounds of 0.8 s, unless it is renewed; a round may take three times as long.
LOCK_MS = "3000"
SET = 0
INVALID_RECORD_STATE = 121

Join = Callable[..., JavaShareConsumer]
OpenOther = type[ConfluentShareConsumer] | type[FranzGoShareConsumer]

OTHERS = pytest.mark.parametrize(
    "open_other",
    [
        pytest.param(ConfluentShareConsumer, id="librdkafka"),
        pytest.param(FranzGoShareConsumer, id="franz-go", marks=pytest.mark.franz_go),
    ],
)


@pytest.fixture
def topic() -> str:
    return f"share-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def group() -> str:
    return f"share-group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def join(java_driver: JavaDriver, group: str, topic: str) -> Iterator[Join]:
    """Lets a member join the group; those that are still in it leave at the end."""
    members: list[JavaShareConsumer] = []

    def join(broker: BrokerProcess, config: Mapping[str, str] | None = None) -> JavaShareConsumer:
        members.append(JavaShareConsumer(java_driver, broker.bootstrap, group, [topic], config))
        return members[-1]

    yield join
    for member in members:
        member.close()


def configure(broker: BrokerProcess, group: str, **settings: str) -> None:
    """Set a group's own configuration."""
    wire = Wire(broker.bootstrap)
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=SET, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
    answer = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [each.error_code for each in answer.responses] == [0]
    wire.close()


def produce(client: Client, topic: str, count: int, first: int = 0) -> None:
    producer = client.producer()
    producer.send(topic, [Record(value=b"%d" % number) for number in range(first, first + count)])
    producer.close()


def take(member: JavaShareConsumer, count: int, kind: str = "ACCEPT") -> list[Delivered]:
    """Poll until so many records have come, each acknowledged so."""
    taken: list[Delivered] = []
    deadline = time.monotonic() + 120
    while len(taken) < count:
        assert time.monotonic() < deadline, f"only {len(taken)} of {count} came"
        records = member.poll()
        if records:
            assert set(member.acknowledge(records, kind).values()) == {0}
        taken += records
    return taken


def test_every_record_is_delivered_once(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic, partitions=2)
    configure(broker, group, share_auto_offset_reset="earliest")
    produce(client, topic, 100)

    taken = take(join(broker), 100)

    assert sorted(int(record.value) for record in taken) == list(range(100))
    assert {record.delivery_count for record in taken} == {1}


def test_released_records_come_again_and_rejected_ones_do_not(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest")
    produce(client, topic, 3)
    member = join(broker)

    first = take(member, 3, "RELEASE")
    assert [record.delivery_count for record in first] == [1, 1, 1]
    again = take(member, 3, "REJECT")
    assert [(record.offset, record.delivery_count) for record in again] == [(0, 2), (1, 2), (2, 2)]
    produce(client, topic, 1, first=3)
    assert [(record.offset, record.delivery_count) for record in take(member, 1)] == [(3, 1)]


def test_a_record_that_always_fails_is_given_up(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest", share_delivery_count_limit="3")
    produce(client, topic, 1)
    member = join(broker)

    assert [record.delivery_count for record in take(member, 3, "RELEASE")] == [1, 2, 3]
    produce(client, topic, 1, first=1)
    assert [record.offset for record in take(member, 1)] == [1]


def test_what_is_rejected_or_always_fails_goes_to_the_dead_letter_queue(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    """Once each, with the record's value and where it was (KIP-1191)."""
    client, queue = connect(broker, "java"), f"dlq.{topic}"
    client.create_topic(topic)
    client.create_topic(queue, configs={"errors.deadletterqueue.group.enable": "true"})
    configure(
        broker,
        group,
        share_auto_offset_reset="earliest",
        share_delivery_count_limit="2",
        errors_deadletterqueue_topic_name=queue,
        errors_deadletterqueue_copy_record_enable="true",
    )
    produce(client, topic, 3)
    member = join(broker)

    given: list[tuple[int, int]] = []
    while (2, 2) not in given:
        for record in member.poll_until_some():
            given.append((record.offset, record.delivery_count))
            assert set(member.acknowledge([record], ("REJECT", "ACCEPT", "RELEASE")[record.offset]).values()) == {0}
    assert sorted(given) == [(0, 1), (1, 1), (2, 1), (2, 2)]

    with closing(client.consumer(queue, BEGINNING)) as consumer:
        letters = consumer.take(2)
    said = [{name: (value or b"").decode() for name, value in letter.headers} for letter in letters]
    assert [(letter.value, headers["__dlq.errors.offset"]) for letter, headers in zip(letters, said, strict=True)] == [
        (b"0", "0"),
        (b"2", "2"),
    ]
    assert [headers["__dlq.errors.delivery.count"] for headers in said] == ["1", "2"]
    assert {headers["__dlq.errors.group"] for headers in said} == {group}
    assert member.poll() == []


def test_a_lock_that_ends_gives_the_record_to_another_member(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest", share_record_lock_duration_ms="2000")
    produce(client, topic, 1)
    slow, quick = join(broker), join(broker)

    held = slow.poll_until_some()
    taken = quick.poll_until_some()

    assert [(record.offset, record.delivery_count) for record in held] == [(0, 1)]
    # Java's client may have begun a second fetch just as the record came. Then it may be the one that gets the record
    # when the lock ends, and lets a second lock end without showing it.
    assert [(record.offset, record.delivery_count >= 2) for record in taken] == [(0, True)]
    assert list(slow.acknowledge(held).values()) == [INVALID_RECORD_STATE]
    assert list(quick.acknowledge(taken).values()) == [0]


def test_a_renewed_lock_keeps_the_record(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest", share_record_lock_duration_ms=LOCK_MS)
    produce(client, topic, 1)
    patient, other = join(broker), join(broker)
    held = patient.poll_until_some()
    for _ in range(4):
        assert list(patient.acknowledge(held, "RENEW").values()) == [0]
        assert other.poll(800) == []
        held = patient.poll(100)
    assert [(record.offset, record.delivery_count) for record in held] == [(0, 1)]
    assert list(patient.acknowledge(held).values()) == [0]


def test_a_partition_that_is_added_later_begins_with_its_first_record(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str
) -> None:
    """Whatever share.auto.offset.reset says, which is `latest` here: what is in it is new to the group."""
    client = connect(broker, "java")
    client.create_topic(topic)
    member = join(broker)
    deadline = time.monotonic() + 120
    while not (records := member.poll()):
        assert time.monotonic() < deadline
        produce(client, topic, 1)
    member.acknowledge(records)
    client.add_partitions(topic, 2)
    with closing(client.producer()) as producer:
        producer.send(topic, [Record(b"new", partition=1)])
    while not any((record.partition, record.offset) == (1, 0) for record in records):
        assert time.monotonic() < deadline
        if records := member.poll():
            member.acknowledge(records)


def test_members_share_a_partition_and_no_record(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest")
    members = [join(broker, {"max.poll.records": "10"}) for _ in range(3)]
    for batch in range(10):
        produce(client, topic, 20, first=batch * 20)
    taken: list[Delivered] = []
    deadline = time.monotonic() + 120
    while len(taken) < 200:
        assert time.monotonic() < deadline, f"only {len(taken)} came"
        for member in members:
            records = member.poll(100)
            if records:
                assert set(member.acknowledge(records).values()) == {0}
            taken += records
    assert sorted(int(record.value) for record in taken) == list(range(200))


def test_a_member_that_leaves_gives_back_what_it_holds(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest")
    produce(client, topic, 5)
    leaver, stayer = join(broker), join(broker)

    held = leaver.poll_until_some()
    assert len(held) == 5
    leaver.close()
    taken = take(stayer, 5)

    # Java's consumer releases what its application has seen, which counts as delivered.
    assert [record.offset for record in taken] == [record.offset for record in held]


def test_transactions_that_are_aborted_are_not_delivered(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest", share_isolation_level="read_committed")
    producer = client.transactional(f"id-{topic}")
    for number, is_committed in enumerate((True, False, True)):
        producer.begin()
        producer.send(topic, [Record(value=b"%d" % number)])
        if is_committed:
            producer.commit()
        else:
            producer.abort()
    producer.close()

    assert [record.value for record in take(join(broker), 2)] == [b"0", b"2"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_what_was_acknowledged_survives_the_broker(
    own_broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str, end: str
) -> None:
    client = connect(own_broker, "java")
    client.create_topic(topic)
    configure(own_broker, group, share_auto_offset_reset="earliest")
    produce(client, topic, 20)
    member = join(own_broker, {"max.poll.records": "5"})
    taken: dict[int, int] = {}
    while len(taken) < 10:
        records = member.poll_until_some()
        accepted = [record for record in records if record.offset % 2]
        released = [record for record in records if not record.offset % 2]
        assert set(member.acknowledge(accepted).values()) <= {0}
        assert set(member.acknowledge(released, "RELEASE").values()) <= {0}
        taken |= {record.offset: record.delivery_count for record in records}
    accepted_offsets = {offset for offset in taken if offset % 2}

    if end == "kill":
        own_broker.kill()
    else:
        own_broker.stop()
    own_broker.start()

    again: dict[int, int] = {}
    deadline = time.monotonic() + 60
    while len(again) < 20 - len(accepted_offsets):
        assert time.monotonic() < deadline, f"only {sorted(again)} came"
        for record in (records := member.poll()):
            assert record.offset not in accepted_offsets, "an accepted record is delivered again"
            again[record.offset] = record.delivery_count
        if records:
            member.acknowledge(records)
    assert all(again[offset] > 1 for offset in taken if offset % 2 == 0 and offset in again and taken[offset])


@OTHERS
def test_other_clients_share_with_java(
    broker: BrokerProcess,
    connect: Callable[..., AdminClient],
    join: Join,
    topic: str,
    group: str,
    open_other: OpenOther,
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic, partitions=2)
    configure(broker, group, share_auto_offset_reset="earliest")
    java, other = join(broker), open_other(broker.bootstrap, group, [topic])
    taken: list[Delivered] = []
    rounds = 0
    deadline = time.monotonic() + 60
    while len(taken) < 60 or rounds < 6:
        assert time.monotonic() < deadline, f"only {len(taken)} came"
        if rounds < 6:
            produce(client, topic, 10, first=rounds * 10)
        rounds += 1
        for member in (java, other):
            records = member.poll(500)
            if records:
                assert set(member.acknowledge(records).values()) == {0}
            taken += records
    other.close()
    assert sorted(int(record.value) for record in taken) == list(range(60))


@OTHERS
def test_other_clients_release_and_reject(
    broker: BrokerProcess, connect: Callable[..., AdminClient], topic: str, group: str, open_other: OpenOther
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest")
    produce(client, topic, 2)
    member = open_other(broker.bootstrap, group, [topic])

    for kind in ("RELEASE", "REJECT"):
        records = member.poll_until_some()
        assert [record.offset for record in records] == [0, 1]
        assert member.acknowledge(records, kind) == {f"{topic}-0": 0}
    produce(client, topic, 1, first=2)
    assert [record.offset for record in member.poll_until_some()] == [2]
    member.close()


@pytest.mark.franz_go
def test_franz_go_renews_its_locks_and_counts_deliveries(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest", share_record_lock_duration_ms=LOCK_MS)
    produce(client, topic, 2)
    patient, other = FranzGoShareConsumer(broker.bootstrap, group, [topic]), join(broker)
    held = patient.poll_until_some()
    assert [(record.offset, record.delivery_count) for record in held] == [(0, 1), (1, 1)]
    for _ in range(4):
        assert patient.acknowledge(held, "RENEW") == {f"{topic}-0": 0}
        assert other.poll(800) == []
    assert patient.acknowledge(held[:1]) == {f"{topic}-0": 0}
    # The other one is released by leaving.
    patient.close()
    assert [(record.offset, record.delivery_count) for record in other.poll_until_some()] == [(1, 2)]


@pytest.mark.franz_go
def test_what_a_killed_member_held_goes_to_another_before_its_locks_end(
    broker: BrokerProcess, connect: Callable[..., AdminClient], join: Join, topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest", share_record_lock_duration_ms="60000")
    produce(client, topic, 5)
    killed = FranzGoShareConsumer(broker.bootstrap, group, [topic])
    held = killed.poll_until_some()
    assert [record.offset for record in held] == [0, 1, 2, 3, 4]
    killed.kill()
    taken = take(join(broker), 5)
    assert [(record.offset, record.delivery_count) for record in taken] == [(offset, 2) for offset in range(5)]


def test_kafkas_tools_consume_describe_reset_and_delete(
    broker: BrokerProcess, connect: Callable[..., AdminClient], topic: str, group: str
) -> None:
    client = connect(broker, "java")
    client.create_topic(topic)
    configure(broker, group, share_auto_offset_reset="earliest")
    produce(client, topic, 4)
    tools = JavaTools()
    try:
        where = ("--bootstrap-server", broker.bootstrap)
        console = tools.run(
            "consumer.ConsoleShareConsumer", *where, "--topic", topic, "--group", group, "--max-messages", "4",
            "--timeout-ms", "30000",
        )  # fmt: skip
        assert console.out.split() == ["0", "1", "2", "3"]

        def share_groups(*arguments: str) -> Done:
            return tools.run("consumer.group.ShareGroupCommand", *where, *arguments)

        assert [group, "Empty"] in share_groups("--list", "--state").lines
        offsets = share_groups("--describe", "--group", group, "--offsets")
        (row,) = [line for line in offsets.lines if line[0] == group]
        assert row[:3] == [group, topic, "0"]
        assert row[-1] == "0", "a lag"

        reset = share_groups("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
        assert [group, topic, "0", "0"] in reset.lines, reset
        again = tools.run(
            "consumer.ConsoleShareConsumer", *where, "--topic", topic, "--group", group, "--max-messages", "4",
            "--timeout-ms", "30000",
        )  # fmt: skip
        assert again.out.split() == ["0", "1", "2", "3"]

        forgotten = share_groups("--delete-offsets", "--group", group, "--topic", topic)
        assert [topic, "Successful"] in forgotten.lines, forgotten
        assert "was successful" in share_groups("--delete", "--group", group).out
        assert [group, "Empty"] not in share_groups("--list", "--state").lines
    finally:
        tools.close()
