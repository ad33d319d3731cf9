"""The same tests against a Kafka that runs elsewhere: here, a broker that the plugin knows nothing of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Broker, BrokerError
from ottla.testing.external import ExternalBroker


@pytest.fixture
def broker() -> Iterator[Broker]:
    """In a process of its own: when a test ends, pytester forgets the modules that this one has loaded meanwhile."""
    with Broker(process=True) as broker:
        yield broker


TESTS = """
import pytest
from confluent_kafka import Producer


def test_records(ottla_broker):
    assert ottla_broker.topics() == {"theirs": 1}
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})
    producer.produce("mine", b"x")
    assert producer.flush(30) == 0
    assert [record.text for record in ottla_broker.wait_for("mine")] == ["x"]


def test_a_reset(ottla_broker):
    assert ottla_broker.topics() == {"theirs": 1}
    ottla_broker.create_topic("mine")


@pytest.mark.ottla(topics={"given": 2})
def test_topics(ottla_broker):
    assert ottla_broker.topics() == {"given": 2, "theirs": 1}


def test_faults(ottla_broker):
    ottla_broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER")


def test_the_clock(ottla_broker):
    ottla_broker.clock.advance(1)


@pytest.mark.ottla(config={"message.max.bytes": 1000})
def test_settings(ottla_broker):
    raise AssertionError


def test_nodes(ottla_cluster):
    raise AssertionError
"""


def test_the_same_tests_run_against_another_kafka(pytester: pytest.Pytester, broker: Broker) -> None:
    broker.create_topic("theirs")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("--ottla-bootstrap", broker.bootstrap, "-rs", "-p", "no:xdist")
    result.assert_outcomes(passed=3, skipped=4)
    result.stdout.fnmatch_lines(
        [
            f"*`faults` needs a broker of Ottla's own, and this run uses {broker.bootstrap}*",
            "*the test needs a broker with settings, users or a process of its own, and this run uses*",
        ]
    )
    assert broker.topics() == {"theirs": 1}


def test_the_environment_names_it_too(
    pytester: pytest.Pytester, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_TEST_BOOTSTRAP", broker.bootstrap)
    pytester.makepyfile("def test_it(ottla_broker): ottla_broker.produce('mine', 1)")
    pytester.runpytest_subprocess("-p", "no:xdist").assert_outcomes(passed=1)
    assert broker.topics() == {}


def test_tests_that_share_one_do_not_run_in_parallel(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(ottla_broker): pass")
    result = pytester.runpytest_subprocess("--ottla-bootstrap", "127.0.0.1:1", "-n", "2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*tests that share one Kafka cannot run in parallel*"])


def test_groups_that_were_made_are_removed(broker: Broker) -> None:
    commit(broker, "theirs")
    with ExternalBroker(broker.bootstrap) as external:
        commit(broker, "mine")
        assert sorted(external.groups()) == ["mine", "theirs"]
        external.reset()
        assert sorted(external.groups()) == ["theirs"]
        external.reset()


def commit(broker: Broker, group: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    broker.produce("t", 1)
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("address", ["host:port", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(BrokerError, match="--ottla-bootstrap"):
        ExternalBroker(address)


def test_nobody_there() -> None:
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"), ExternalBroker("127.0.0.1:1"):
        raise AssertionError
