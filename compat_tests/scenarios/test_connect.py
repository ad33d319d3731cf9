"""Kafka Connect, distributed over two workers: a source with exactly-once support and a sink, while a worker is killed.

Connect keeps its own state in three compacted topics and is a group of a protocol of its own; its source fences the
tasks of dead workers by transactions.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from compat_tests.brokers.process import HOST, BrokerProcess, free_port
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.java import QUICK, compiled, java

SOURCE: Final = Path(__file__).resolve().parents[1] / "java" / "Connectors.java"
PATIENCE_S: Final = 240.0
TASKS: Final = 2
COUNT: Final = 2_000
TOPIC: Final = "numbers"

pytestmark = [pytest.mark.groups, pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(900)]


class Worker:
    """One worker of a Connect cluster, and its REST port."""

    def __init__(self, bootstrap: str, replicas: int, classes: Path, folder: Path) -> None:
        folder.mkdir()
        self.port = free_port()
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "listeners": f"http://{HOST}:{self.port}",
            "plugin.discovery": "only_scan",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "consumer.auto.offset.reset": "earliest",
            "offset.storage.partitions": "3",
            "status.storage.partitions": "1",
        }
        for kind in ("config", "offset", "status"):
            settings[f"{kind}.storage.topic"] = f"connect-{kind}"
            settings[f"{kind}.storage.replication.factor"] = str(replicas)
        properties = folder / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = java(
            *QUICK,
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(properties),
            heap_mb=256,
            log_level="warn",
            classes=classes,
        )
        self.log = folder / "worker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(self, method: str, path: str, document: Any = None) -> Any:
        """The answer of its REST port; None while it has none, or says that it rebalances."""
        body = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(
            f"http://{HOST}:{self.port}{path}", body, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def workers(broker: BrokerProcess, count: int, folder: Path) -> Iterator[list[Worker]]:
    """Workers that have found each other, or at least started."""
    classes = compiled(SOURCE)
    replicas = 3 if broker.is_cluster else 1
    with ExitStack() as stack:
        running = []
        for number in range(count):
            running.append(Worker(broker.bootstrap, replicas, classes, folder / f"worker-{number}"))
            stack.callback(running[-1].kill)
        yield running


def until(step: Callable[[], Any], *watched: Worker) -> Any:
    """The first answer of a step that is one."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := step()):
        late = time.monotonic() > deadline
        assert not late, "\n".join(worker.log.read_text()[-4000:] for worker in watched)
        time.sleep(0.2)
    return found


def is_running(worker: Worker, name: str) -> bool:
    status = worker.ask("GET", f"/connectors/{name}/status")
    return status is not None and [task["state"] for task in status["tasks"]] == ["RUNNING"] * TASKS


def test_a_source_and_a_sink_go_on_where_a_killed_worker_left_them(broker: BrokerProcess, tmp_path: Path) -> None:
    reference = Confluent(broker.bootstrap)
    reference.create_topic(TOPIC, partitions=TASKS)
    file = tmp_path / "lines"
    file.touch()
    source = {"connector.class": "Connectors$Numbers", "topic": TOPIC, "count": COUNT, "tasks.max": TASKS}
    sink = {"connector.class": "Connectors$Lines", "topics": TOPIC, "file": str(file), "tasks.max": TASKS}
    sink["consumer.override.isolation.level"] = "read_committed"
    with workers(broker, 2, tmp_path) as (stays, dies):
        for name, config in (("source", source), ("sink", sink)):
            until(partial(stays.ask, "PUT", f"/connectors/{name}/config", config), stays)
        for name in ("source", "sink"):
            until(partial(is_running, stays, name), stays)
        until(lambda: len(file.read_text().splitlines()) > TASKS * COUNT // 10, stays, dies)
        dies.kill()
        until(lambda: len(written(file)) == TASKS * COUNT, stays)
        for name in ("source", "sink"):
            until(partial(is_running, stays, name), stays)
    records = [record for task in range(TASKS) for record in everything(reference, task)]
    # The source is exactly once, and the sink has written every record, some of them perhaps twice.
    assert Counter((record.partition, int(record.value or b"")) for record in records) == Counter(
        (task, number) for task in range(TASKS) for number in range(COUNT)
    )
    assert written(file) == {(record.partition, record.offset, int(record.value or b"")) for record in records}


def everything(reference: Confluent, partition: int) -> list[Record]:
    """What is committed of a partition, and nothing comes behind it."""
    where = reference.consumer(TOPIC, BEGINNING, partition=partition, isolation="read_committed")
    with closing(where) as consumer:
        return [*consumer.take(COUNT), *consumer.take(1, 1.0)]


def written(file: Path) -> set[tuple[int, int, int]]:
    """(partition, offset, value) of all whole lines; the last one may be on its way."""
    lines = file.read_text().split("\n")[:-1]
    return {(int(partition), int(offset), int(value)) for partition, offset, value in map(str.split, lines)}
