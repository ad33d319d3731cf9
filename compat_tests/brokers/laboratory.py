"""Three real nodes and a real etcd, with links between all of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from compat_tests.brokers.disks import Disks
from compat_tests.brokers.links import Link, Links
from compat_tests.brokers.process import HOST
from ottla.testing import Cluster
from tests.etcd import Etcd

__all__ = ["NODES", "SESSION_S", "SETTINGS", "Laboratory"]

NODES: Final = (1, 2, 3)
SESSION_S: Final = 2.0
SETTINGS: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "200",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
}


class Laboratory:
    """Runs until `stack` is left, on a folder that must be new."""

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        *,
        config: Mapping[str, str] | None = None,
        clients_by_links: bool = False,
        disk_bytes: int = 0,
    ) -> None:
        """With `disk_bytes` each node has a disk of that size, which can be filled; OSError if that cannot be."""
        self.etcd = Etcd(folder / "etcd", members=3)
        stack.callback(self.etcd.close)
        self.etcd.start()
        self.links = Links(NODES, with_clients=clients_by_links)
        stack.callback(self.links.close)
        #: For each node its own ways to the members of etcd.
        self.to_etcd = {node_id: [Link(port) for port in self.etcd.clients] for node_id in NODES}
        own = {}
        for node_id, settings in self.links.node_config.items():
            hosts = ",".join(f"{HOST}:{link.port}" for link in self.to_etcd[node_id])
            own[node_id] = {**settings, "ottla.metadata.store": f"etcd://{hosts}/laboratory"}
        self.folder = folder / "nodes"
        self.disks = None
        if disk_bytes:
            self.disks = Disks(self.folder, NODES, disk_bytes)
            stack.callback(self.disks.close)
        settings = {**SETTINGS, "broker.session.timeout.ms": str(int(SESSION_S * 1000)), **(config or {})}
        self.cluster = stack.enter_context(Cluster(3, config=settings, node_config=own, data_dir=self.folder))

    @contextmanager
    def cut_off(self, node_id: int, *, from_brokers: bool = False, from_etcd: bool = False) -> Iterator[None]:
        links = [self.links.to[node_id]] * from_brokers + self.to_etcd[node_id] * from_etcd
        for link in links:
            link.cut()
        try:
            yield
        finally:
            for link in links:
                link.mend()

    def empty_disk(self, node_id: int) -> None:
        shutil.rmtree(self.folder / f"node-{node_id}")
