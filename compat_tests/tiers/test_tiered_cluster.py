"""Nodes with replicas of tiered topics: a leader is killed while its object store is read from, or loses its disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from compat_tests.brokers.tiered import ONLY_THE_END
from compat_tests.tiers.numbers import Numbers, read_back
from compat_tests.tiers.remote_topic import EARLIEST, RemoteTopic
from compat_tests.wire.wire import WireConnection
from ottla.testing import Cluster

pytestmark = pytest.mark.tiers

TOPIC, PARTITIONS = "numbers", 3
RECORDS = 3_000


@pytest.fixture(params=[2, 3])
def cluster(request: pytest.FixtureRequest, new_url: Callable[[], str], tmp_path: Path) -> Iterator[Cluster]:
    config = {
        "ottla.remote.url": new_url(),
        "remote.log.manager.task.interval.ms": "100",
        "log.retention.check.interval.ms": "300",
        "min.insync.replicas": "1",
    }
    with Cluster(request.param, config=config, data_dir=tmp_path) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1", **ONLY_THE_END})
        yield cluster


def wait_until_tiered(cluster: Cluster, numbers: Numbers) -> None:
    for partition, values in numbers.acknowledged.items():
        host, _, port = cluster.address(cluster.wait_for_leader(TOPIC, partition)).rpartition(":")
        with closing(WireConnection((host, int(port)))) as leader:
            topic = RemoteTopic(leader, TOPIC)
            topic.wait_until_remote(len(values) // 2, partition)
            assert topic.offset(EARLIEST, partition) == 0


def require_all(cluster: Cluster, numbers: Numbers) -> None:
    for partition, values in numbers.acknowledged.items():
        assert list(read_back(cluster.bootstrap, TOPIC, partition, 0, len(values))) == values


def test_a_leader_is_killed_and_then_has_an_empty_disk(cluster: Cluster, tmp_path: Path) -> None:
    numbers = Numbers(cluster.bootstrap, TOPIC, PARTITIONS)
    numbers.write(RECORDS)
    assert numbers.wait() == 0
    wait_until_tiered(cluster, numbers)
    leader = cluster.leader(TOPIC)
    # It is read from when it is killed.
    wanted = numbers.acknowledged[0]
    reading = iter(read_back(cluster.bootstrap, TOPIC, 0, 0, len(wanted)))
    found = list(islice(reading, len(wanted) // 4))
    cluster.kill(leader)
    found += reading
    assert found == wanted
    numbers.write(RECORDS)
    assert numbers.wait() == 0
    require_all(cluster, numbers)
    (folder,) = tmp_path.glob(f"node-{leader}/{TOPIC}.*")
    shutil.rmtree(folder)
    cluster.start(leader)
    for partition in range(PARTITIONS):
        cluster.move_leader(TOPIC, partition, leader, timeout_s=60)
    require_all(cluster, numbers)
    numbers.write(RECORDS)
    assert numbers.wait() == 0
    wait_until_tiered(cluster, numbers)
    require_all(cluster, numbers)
    assert numbers.refused == []
