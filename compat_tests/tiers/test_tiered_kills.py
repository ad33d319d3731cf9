"""A broker is killed at requests of its own to the object store, which fails in between; then every record is read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.brokers.tiered import ONLY_THE_END, tiered_ottla
from compat_tests.clients.confluent import Confluent
from compat_tests.tiers.numbers import Numbers, read_back
from compat_tests.tiers.remote_topic import EARLIEST, RemoteTopic
from compat_tests.wire.wire import Wire
from tests.tiers.http_faults import Fault, FaultyProxy

pytestmark = pytest.mark.tiers

TOPIC, PARTITIONS = "numbers", 3
KILLS = 12
FAULTS = tuple(fault for fault in Fault if fault is not Fault.NONE)
FAULTY_SHARE = 0.1
RECORDS_AT_ONCE = 150


class Killer:
    """Kills a process at one of the next requests, before the request is carried out or after; others fail now and
    then.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._pid = 0
        self._left = 0
        self.at: list[str] = []

    def aim(self, pid: int, requests: int) -> None:
        self._left, self._pid = requests, pid

    def choose(self, method: str, path: str) -> Fault:
        if self._pid:
            self._left -= 1
            if self._left <= 0:
                os.killpg(self._pid, signal.SIGKILL)
                self._pid = 0
                self.at.append(f"{method} {path}")
                return self._random.choice((Fault.NONE, Fault.RESET, Fault.LOST_ANSWER))
        return self._random.choice(FAULTS) if self._random.random() < FAULTY_SHARE else Fault.NONE


def fsck(url: str) -> dict[str, object]:
    command = [str(Path(sys.executable).parent / "ottla"), "fsck", "--remote", "--read-all", "--json"]
    done = subprocess.run([*command, "--remote-url", url], capture_output=True, text=True, timeout=300, check=False)
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("seed", range(2))
def test_a_broker_that_is_killed_at_its_requests_loses_nothing(
    tmp_path: Path, new_url: Callable[[], str], proxy: FaultyProxy, seed: int
) -> None:
    random = Random(seed)
    killer = Killer(random)
    url = new_url()
    sweeping = {"ottla.remote.sweep.interval.ms": "1000"}
    deleted = dict.fromkeys(range(PARTITIONS), 0)
    with tiered_ottla(tmp_path, url=url, overrides=sweeping) as broker:
        Confluent(broker.bootstrap).create_topic(
            TOPIC, partitions=PARTITIONS, configs={"retention.ms": "-1", **ONLY_THE_END}
        )
        numbers = Numbers(broker.bootstrap, TOPIC, PARTITIONS)
        proxy.choose = killer.choose
        for kill in range(KILLS):
            killer.aim(broker.pid, random.randint(1, 25))
            deadline = time.monotonic() + 120
            while not broker.has_ended:
                assert time.monotonic() < deadline
                numbers.write(RECORDS_AT_ONCE)
                numbers.wait(0.5)
            broker.kill()
            broker.start()
            if kill % 3 == 2:
                numbers.wait()
                partition = random.randrange(PARTITIONS)
                until = random.randint(deleted[partition], len(numbers.acknowledged[partition]))
                delete(broker.bootstrap, partition, until)
                deleted[partition] = until
        proxy.let_all_pass()
        numbers.write(RECORDS_AT_ONCE)
        assert numbers.wait() == 0
        assert numbers.refused == []
        with closing(Wire(broker.bootstrap)) as wire:
            topic = RemoteTopic(wire, TOPIC)
            for partition, values in numbers.acknowledged.items():
                topic.wait_until_remote(len(values) // 2, partition)
                first = topic.offset(EARLIEST, partition)
                assert first == deleted[partition]
                found = list(read_back(broker.bootstrap, TOPIC, partition, first, len(values) - first))
                assert found == sorted(values)[first:], (partition, killer.at)
    found_by_fsck = fsck(url)
    assert (found_by_fsck["exit_code"], found_by_fsck["findings"]) == (0, []), killer.at
    assert found_by_fsck["partitions"] == PARTITIONS


def delete(bootstrap: str, partition: int, until: int) -> None:
    """Delete records up to an offset; the object store may fail meanwhile."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + 120
    while True:
        at = TopicPartition(TOPIC, partition, until)
        try:
            admin.delete_records([at])[at].result(30)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            return
