"""Three brokers that a test may kill, pause and restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import BrokerError, Cluster


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.reset()


def values(cluster: Cluster, topic: str) -> list[int]:
    return sorted(int(record.text) for record in cluster.records(topic))


def test_partitions_are_spread_over_the_nodes(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=6)
    cluster.produce("t", *range(60))
    assert sorted(cluster.leader("t", partition) for partition in range(6)) == [1, 1, 2, 2, 3, 3]
    assert values(cluster, "t") == list(range(60))
    assert len(cluster.bootstrap_servers.split(",")) == 3


def test_what_was_acknowledged_survives_a_kill_of_any_node(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=3)
    for node_id in cluster.node_ids:
        cluster.produce("t", *range(node_id * 10, node_id * 10 + 10))
        cluster.kill(node_id)
        assert cluster.running == [it for it in cluster.node_ids if it != node_id]
        address = cluster.address(node_id)
        cluster.restart(node_id)
        assert cluster.address(node_id) == address
    assert cluster.running == [1, 2, 3]
    cluster.wait_for("t", 30)
    assert values(cluster, "t") == list(range(10, 40))


def test_a_client_goes_on_when_the_leader_is_killed(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=3)
    leader = cluster.leader("t", 0)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0})
    group = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **group})
    consumer.subscribe(["t"])
    seen: list[int] = []
    for number in range(60):
        producer.produce("t", value=str(number), partition=number % 3)
        if number == 20:
            assert producer.flush(20) == 0
            cluster.kill(leader)
    assert producer.flush(30) == 0
    while len(set(seen)) < 60:
        message = consumer.poll(30)
        assert message is not None, f"only {len(seen)} came"
        if message.error() is None:
            seen.append(int(message.value() or b""))
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(seen) == list(range(60))
    assert cluster.wait_for_leader("t", 0, other_than=leader) != leader
    assert sum(cluster.groups()["g"].lag.values()) == 0


def test_a_paused_node_answers_when_it_goes_on(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=3)
    with cluster.paused(2):
        assert cluster.topics() == {"t": 3}
    cluster.produce("t", 1, partition=0)
    assert values(cluster, "t") == [1]


def test_a_reset_starts_what_was_stopped_and_forgets_the_rest(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=3)
    cluster.stop(1)
    cluster.pause(3)
    cluster.reset()
    assert cluster.running == [1, 2, 3]
    assert cluster.topics() == {}


def test_a_node_that_is_not_there_is_named(cluster: Cluster) -> None:
    with pytest.raises(BrokerError, match="there is no node 4: they are 1, 2, 3"):
        cluster.kill(4)


def test_the_fixture_lends_a_cluster_and_mends_it_after_each_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        import pytest

        def test_kills(ottla_cluster):
            ottla_cluster.create_topic("t")
            ottla_cluster.kill(2)

        def test_finds_it_whole(ottla_cluster):
            assert ottla_cluster.running == [1, 2, 3]
            assert ottla_cluster.topics() == {}

        @pytest.mark.ottla(nodes=2, topics={"orders": 2})
        def test_of_two(ottla_cluster):
            assert ottla_cluster.node_ids == [1, 2]
            assert {ottla_cluster.leader("orders", 0), ottla_cluster.leader("orders", 1)} == {1, 2}
        """
    )
    result = pytester.runpytest_subprocess("-p", "ottla.testing.pytest_plugin", "--strict-markers")
    result.assert_outcomes(passed=3)


def test_a_partition_and_a_coordinator_are_moved(cluster: Cluster) -> None:
    cluster.create_topic("t", partitions=2)
    cluster.produce("t", *range(10))
    for what, move in (("leader", cluster.move_leader), ("coordinator", None)):
        before = cluster.leader("t", 1) if what == "leader" else cluster.coordinator("g")
        to = before % 3 + 1
        if move is not None:
            move("t", 1, to)
            assert cluster.leader("t", 1) == to
        else:
            cluster.move_coordinator("g", to)
            assert cluster.coordinator("g") == to
    assert values(cluster, "t") == list(range(10))
    with pytest.raises(BrokerError, match="there is no node 9"):
        cluster.move_leader("t", 0, 9)
    with pytest.raises(BrokerError, match="no partition 5"):
        cluster.move_leader("t", 5, 1)
