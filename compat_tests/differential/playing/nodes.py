"""Three nodes of each broker, which can be killed and started one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from compat_tests.brokers.apache_kafka import JVM_OPTIONS, ApacheKafka, ApacheKafkaCluster
from compat_tests.brokers.process import HOST
from compat_tests.wire.wire_routes import Address
from ottla.testing import Cluster

NODES: Final = (1, 2, 3)
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
}


class Nodes(Protocol):
    """Three nodes with the ids of `NODES`."""

    live: set[int]

    def address(self, node_id: int) -> Address: ...

    def kill_node(self, node_id: int) -> None: ...

    def start_node(self, node_id: int) -> None: ...


class KafkaNodes(ApacheKafkaCluster):
    def __init__(self, folder: Path, overrides: Mapping[str, str]) -> None:
        super().__init__(folder, overrides=overrides, jvm_options=(*JVM_OPTIONS, "-XX:TieredStopAtLevel=1"))
        self.live = set(NODES)

    def address(self, node_id: int) -> Address:
        return HOST, self._node(node_id).port

    def kill_node(self, node_id: int) -> None:
        self.live.discard(node_id)
        self._node(node_id).kill()

    def start_node(self, node_id: int) -> None:
        self._node(node_id).start()
        self.live.add(node_id)

    @property
    def has_ended(self) -> bool:
        return any(node.has_ended for node in self.nodes)

    def _node(self, node_id: int) -> ApacheKafka:
        return self.nodes[node_id - 1]


class OttlaNodes:
    name = "ottla"

    def __init__(self, folder: Path, overrides: Mapping[str, str]) -> None:
        self._folder = folder
        self._cluster = Cluster(len(NODES), config=overrides, data_dir=folder)
        self.live = set(NODES)

    @property
    def port(self) -> int:
        return self.address(min(self.live))[1]

    @property
    def has_ended(self) -> bool:
        return set(self._cluster.running) < self.live

    def address(self, node_id: int) -> Address:
        host, _, port = self._cluster.address(node_id).rpartition(":")
        return host, int(port)

    def start(self) -> None:
        self._cluster.start()
        self.live = set(NODES)

    def stop(self) -> int:
        self._cluster.stop()
        return 0

    def kill(self) -> None:
        self._cluster.kill()

    def kill_node(self, node_id: int) -> None:
        self.live.discard(node_id)
        self._cluster.kill(node_id)

    def start_node(self, node_id: int) -> None:
        self._cluster.start(node_id)
        self.live.add(node_id)

    def log_tail(self, lines: int = 30) -> str:
        logs = self._folder.glob("node-*.log")
        return "\n".join(line for log in logs for line in log.read_text(errors="replace").splitlines()[-lines:])
