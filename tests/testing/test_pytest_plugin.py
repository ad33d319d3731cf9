"""The plugin as a project uses it: pytest within pytest."""

from __future__ import annotations

import pytest

CLIENTS = """
import asyncio

import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer


def test_confluent_kafka(ottla_broker):
    ottla_broker.create_topic("t")
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    producer.produce("t", b"c")
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": ottla_broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    assert consumer.poll(60).value() == b"c"
    consumer.close()
    assert list(ottla_broker.groups()) == ["g"]


def test_kafka_python(ottla_broker):
    assert ottla_broker.topics() == {} and ottla_broker.groups() == {}
    producer = KafkaProducer(bootstrap_servers=ottla_broker.bootstrap)
    producer.send("t", b"k").get(60)
    producer.close()
    consumer = KafkaConsumer(
        "t", bootstrap_servers=ottla_broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    assert next(consumer).value == b"k"
    consumer.close()


def test_aiokafka(ottla_broker):
    async def main():
        async with AIOKafkaProducer(bootstrap_servers=ottla_broker.bootstrap) as producer:
            await producer.send_and_wait("t", b"a")
        assert [record.text for record in await ottla_broker.wait_for_async("t")] == ["a"]
        consumer = AIOKafkaConsumer("t", bootstrap_servers=ottla_broker.bootstrap, auto_offset_reset="earliest")
        async with consumer:
            assert (await consumer.getone()).value == b"a"

    asyncio.run(main())


def test_trio(ottla_broker):
    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, lambda: ottla_broker.produce("t", "x"))
            assert len(await ottla_broker.wait_for_async("t")) == 1

    trio.run(main)
"""

MARKERS = """
import pytest


def test_nothing_is_left_of_another_test(ottla_broker):
    assert ottla_broker.topics() == {}
    ottla_broker.produce("left", "x")
    ottla_broker.faults.delay("Fetch", ms=60_000)


def test_nothing_is_left_of_another_test_here_either(ottla_broker, ottla_session_broker):
    assert ottla_broker is ottla_session_broker
    assert ottla_broker.topics() == {}


@pytest.mark.ottla(topics=["a", "b"])
def test_topics_by_name(ottla_broker):
    assert ottla_broker.topics() == {"a": 1, "b": 1}


@pytest.mark.ottla(topics={"a": 3}, load="seed.jsonl")
def test_topics_with_partitions_and_records(ottla_broker):
    assert ottla_broker.topics() == {"a": 3, "seed": 1}
    assert [record.json() for record in ottla_broker.records("seed")] == [{"n": 1}]


@pytest.mark.ottla(config={"auto.create.topics.enable": False, "num.partitions": 4})
def test_a_broker_of_its_own(ottla_broker, ottla_session_broker):
    assert ottla_broker.port != ottla_session_broker.port
    with pytest.raises(Exception, match="does not exist|no topic"):
        ottla_broker.produce("absent", "x")


def test_it_is_started_again_when_a_test_has_stopped_it(ottla_broker):
    ottla_broker.stop()


def test_after_it_was_stopped(ottla_broker):
    ottla_broker.produce("t", "x")
"""


ALONE = ("-p", "ottla.testing.pytest_plugin")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the plugins that are named: the rest of those that are installed takes longer to load than a test runs."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture(autouse=True)
def like_our_own_suite(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nfilterwarnings =\n    error\n    ignore:(read|open)_text is deprecated:DeprecationWarning\n"
    )


def test_every_client_works_with_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CLIENTS)
    result = pytester.runpytest_subprocess("--strict-markers")  # loaded by its entry point, as every project has it
    result.assert_outcomes(passed=4)


@pytest.mark.usefixtures("alone")
def test_marker_and_reset(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MARKERS)
    pytester.makefile(".jsonl", seed='{"n": 1}\n')
    result = pytester.runpytest_subprocess(*ALONE, "--strict-markers")
    result.assert_outcomes(passed=7)


@pytest.mark.usefixtures("alone")
def test_each_worker_of_xdist_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest


        @pytest.mark.parametrize("number", range(8))
        def test_alone(ottla_broker, number, worker_id):
            assert ottla_broker.topics() == {}
            ottla_broker.produce("mine", worker_id)
            print(f"{worker_id} {ottla_broker.bootstrap}")
            assert {record.text for record in ottla_broker.records("mine")} == {worker_id}
        """
    )
    result = pytester.runpytest_subprocess(*ALONE, "-p", "xdist", "-n", "2", "--dist", "loadgroup", "-rP")
    result.assert_outcomes(passed=8)
    used = {tuple(line.split()) for line in result.outlines if line.startswith(("gw0 ", "gw1 "))}
    assert {worker for worker, _ in used} == {"gw0", "gw1"}
    assert len({address for _, address in used}) == 2


@pytest.mark.usefixtures("alone")
def test_the_report_of_a_failure_says_what_the_broker_held(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(ottla_broker):
            ottla_broker.produce("orders", "first", {"id": 2}, key="ann")
            ottla_broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="orders", partition=0)
            ottla_broker.faults.drop_connections("Heartbeat")
            ottla_broker.clock.advance(2 * 24 * 3600)
            assert len(ottla_broker.records("orders")) == 3


        def test_without_a_broker(ottla_broker):
            ottla_broker.stop()
            raise AssertionError
        """
    )
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*- ottla_broker -*",
            "127.0.0.1:*",
            "topic orders: 1 partitions, 2 offsets",
            "    0:0 key='ann' value='first'",
            "    0:1 key='ann' value='{\"id\":2}'",
            "fault that never struck: error Fetch of orders with NOT_LEADER_OR_FOLLOWER, partition 0",
            "fault that never struck: drop Heartbeat",
            "*- ottla_broker -*",
            "the broker was stopped",
        ]
    )
    result.stdout.no_fnmatch_line("*Captured log*")


@pytest.mark.usefixtures("alone")
def test_the_report_of_a_failure_says_what_was_denied(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from confluent_kafka import Producer

        from ottla.testing import Broker


        def test_it():
            with Broker(users={"alice": "wonder"}, acls=["alice describe topic:orders"]) as broker:
                broker.create_topic("orders")
                producer = Producer(broker.client_config("alice"))
                producer.produce("orders", "x")
                producer.flush(20)
            assert False
        """
    )
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ottla.audit*User:alice is denied WRITE on TOPIC orders*"])


@pytest.mark.usefixtures("alone")
def test_data_can_be_kept_in_a_folder(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(ottla_session_broker): ottla_session_broker.produce('kept', 'x')")
    result = pytester.runpytest_subprocess(*ALONE, "--ottla-data-dir", "data")
    result.assert_outcomes(passed=1)
    assert list(pytester.path.glob("data/node-*/kept.*"))


@pytest.mark.usefixtures("alone")
def test_settings_come_from_the_project(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nottla_config =\n    num.partitions=7\n")
    pytester.makepyfile(
        """
        def test_it(ottla_broker):
            ottla_broker.produce("t", "x")
            assert ottla_broker.topics() == {"t": 7}
        """
    )
    pytester.runpytest_subprocess(*ALONE).assert_outcomes(passed=1)


@pytest.mark.usefixtures("alone")
def test_nothing_is_loaded_for_a_project_that_asks_for_no_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys


        def test_it():
            loaded = [name for name in sys.modules if name.startswith("ottla.")]
            assert sorted(loaded) == ["ottla.testing", "ottla.testing.pytest_plugin"]
        """
    )
    pytester.runpytest_subprocess(*ALONE).assert_outcomes(passed=1)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        (
            "topic='orders'",
            "*ottla does not know 'topic'. Did you mean topics? There are config, topics, load, process, nodes, *.",
        ),
        (
            "retention=1",
            "*ottla does not know 'retention'. There are config, topics, load, process, nodes, users, acls, tls, "
            "max_versions.",
        ),
        (
            "'orders'",
            "*takes its arguments by name, and 'orders' has none: there are config, topics, load, process, nodes, *.",
        ),
    ],
)
def test_a_slip_in_the_marker_is_a_sentence(pytester: pytest.Pytester, marker: str, sentence: str) -> None:
    pytester.makepyfile(f"import pytest\n\n@pytest.mark.ottla({marker})\ndef test_it(ottla_broker): pass\n")
    result = pytester.runpytest_subprocess(*ALONE)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([sentence])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*TypeError*")
