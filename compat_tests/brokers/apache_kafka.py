"""Apache Kafka, the oracle: one KRaft node on 127.0.0.1, in a folder of its own.

`python -m compat_tests.brokers.apache_kafka --port 0` prints its bootstrap address and runs until it is interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from compat_tests.brokers.process import (
    HOST,
    POLL_INTERVAL_S,
    BrokerProcess,
    BrokerStartError,
    brokers_in_metadata,
    free_port,
)
from compat_tests.java import QUICK, java, missing

T = TypeVar("T")

CLUSTER_ID = "T3R0bGEtb3JhY2xlLTAwMQ"

# What Apache Kafka needs to be a cluster of one, and what keeps its start quick: after a kill -9 the controller takes
# the broker back only when its old session has ended. The rebalance delay is Kafka's 3 s made short, but not nothing:
# kafka-python 3.0.12 may lose its place for ever in a group that it joins before it knows its topics' partitions.
SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.initial.rebalance.delay.ms": "300",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}

NODES = 3

# The scenarios are about what is spread over nodes. What is replicated is as it is with one node: once.
ONE_REPLICA = {name: value for name, value in SINGLE_NODE.items() if name.endswith((".replication.factor", ".min.isr"))}

# As Apache Kafka's own start script runs it.
JVM_OPTIONS = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


class ApacheKafka(BrokerProcess):
    """Apache Kafka as a process. `overrides` are lines of its server.properties."""

    name = "kafka"
    #: Where others keep the cores busy a JVM takes minutes; alone it takes seconds.
    start_timeout_s = 240.0

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        *,
        overrides: Mapping[str, str] | None = None,
        heap_mb: int = 512,
        classes: Path | None = None,
        jvm_options: Sequence[str] = JVM_OPTIONS,
    ) -> None:
        """`classes` is a folder of classes that `overrides` name. With `java.QUICK` as `jvm_options` it starts with two
        thirds of the work, and is slow under load."""
        super().__init__(folder, port or free_port())
        self.heap_mb = heap_mb
        self._classes = classes
        self._jvm_options = jvm_options
        self._properties_path = folder / "server.properties"
        controller = f"{HOST}:{free_port()}"
        self._properties = SINGLE_NODE | {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(folder / "logs"),
            **(overrides or {}),
        }

    def spawn(self) -> None:
        if not self._properties_path.exists():
            self._format()
        super().spawn()

    def command(self) -> list[str]:
        arguments = (*self._jvm_options, "kafka.Kafka", str(self._properties_path))
        return java(*arguments, heap_mb=self.heap_mb, log_level="warn", classes=self._classes)

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = (f"{name}={value}\n" for name, value in self._properties.items())
        self._properties_path.write_text("".join(lines))
        tool = java(*QUICK, "kafka.tools.StorageTool")
        done = subprocess.run(
            [*tool, "format", "--cluster-id", CLUSTER_ID, "--config", str(self._properties_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            self._properties_path.unlink()
            raise BrokerStartError(f"kafka: formatting failed\n{done.stdout}{done.stderr}")


class ApacheKafkaCluster(BrokerProcess):
    """Three nodes of Apache Kafka, each of which is broker and controller; started, stopped and killed together."""

    name = "kafka"
    is_cluster = True
    start_timeout_s = ApacheKafka.start_timeout_s

    def __init__(
        self,
        folder: Path,
        port: int = 0,
        *,
        overrides: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = JVM_OPTIONS,
    ) -> None:
        controllers = [f"{HOST}:{free_port()}" for _ in range(NODES)]
        voters = ",".join(f"{number}@{address}" for number, address in enumerate(controllers, 1))
        self.nodes = []
        for number, controller in enumerate(controllers, 1):
            own_port = free_port()
            address = f"{HOST}:{own_port}"
            own = {
                "node.id": str(number),
                "listeners": f"PLAINTEXT://{address},CONTROLLER://{controller}",
                "controller.quorum.voters": voters,
            }
            node = ApacheKafka(
                folder / f"node-{number}",
                own_port,
                overrides={**own, **(overrides or {})},
                heap_mb=384,
                jvm_options=jvm_options,
            )
            self.nodes.append(node)
        super().__init__(folder, self.nodes[0].port)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def pid(self) -> int:
        return self.nodes[0].pid

    def start(self) -> None:
        """A node answers once most of the voters are there: all have to be started first."""
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.await_started()
        deadline = time.monotonic() + self.start_timeout_s
        while min(brokers_in_metadata(node.port) for node in self.nodes) < NODES:
            if time.monotonic() > deadline:
                raise BrokerStartError("the brokers do not all know each other in time")
            time.sleep(POLL_INTERVAL_S)

    def stop(self) -> int:
        """Together, too: the last one of a quorum cannot hand over what it leads."""
        return max(self._end_all(ApacheKafka.stop))

    def kill(self) -> None:
        self._end_all(ApacheKafka.kill)

    def _end_all(self, end: Callable[[ApacheKafka], T]) -> list[T]:
        with ThreadPoolExecutor(NODES) as threads:
            return list(threads.map(end, self.nodes))

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(node.log_tail(lines) for node in self.nodes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs Apache Kafka until it is interrupted.")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--data-dir", type=Path, help="kept afterwards; without it a temporary folder is used")
    parser.add_argument("--heap-mb", type=int, default=512)
    parser.add_argument("--override", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    if reason := missing():
        parser.exit(2, f"{reason}\n")
    overrides = dict(line.split("=", 1) for line in arguments.override)
    with tempfile.TemporaryDirectory(prefix="apache-kafka-") as temporary:
        folder = arguments.data_dir or Path(temporary)
        kafka = ApacheKafka(folder, arguments.port, overrides=overrides, heap_mb=arguments.heap_mb)
        with kafka:
            print(kafka.bootstrap, flush=True)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with contextlib.suppress(KeyboardInterrupt):
                kafka.wait()


if __name__ == "__main__":
    main()
