"""Ottla as a process: `ottla serve` on a data folder, ready when its ready line says so."""

from __future__ import annotations

import json
import selectors
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from compat_tests.brokers.apache_kafka import NODES, ONE_REPLICA, SINGLE_NODE
from compat_tests.brokers.process import HOST, BrokerProcess, BrokerStartError, Process
from tests.etcd import Etcd
from tests.forked import Forked

# What Apache Kafka is given too, so that both answer alike.
SETTINGS = {
    name: value
    for name, value in SINGLE_NODE.items()
    if name.startswith(("group.", "transaction.abort."))
    or name.endswith("state.log.num.partitions")
    or name == "offsets.topic.num.partitions"
}


class OttlaBroker(BrokerProcess):
    """`ottla serve` as a process. `overrides` are settings by their Kafka names."""

    name = "ottla"
    start_timeout_s = 20.0
    #: For a scenario that starts several, and tests what comes after.
    is_forked = False

    def __init__(self, folder: Path, port: int = 0, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, port)
        self._settings = SETTINGS | dict(overrides or {})

    def command(self) -> list[str]:
        settings = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        program = str(Path(sys.executable).parent / "ottla")
        data_dir = str(self.folder / "data")
        return [program, "serve", "--listen", f"{HOST}:{self.port}", "--data-dir", data_dir, *settings]

    def begin(self, log: IO[str]) -> Process:
        if not self.is_forked:
            return super().begin(log)
        return Forked(self.command()[1:], stderr=log, start_new_session=True)

    def await_ready(self, process: Process, deadline: float) -> None:
        self.port = self.read_ready_line(process, deadline)["port"]

    def read_ready_line(self, process: Process, deadline: float) -> dict[str, Any]:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise BrokerStartError("printed no ready line in time")
        line = process.stdout.readline()
        if not line:
            raise BrokerStartError(f"ended with exit code {process.wait()} before it was ready")
        ready: dict[str, Any] = json.loads(line)
        assert ready["event"] == "ready", ready
        return ready


class OttlaCluster(OttlaBroker):
    """Several nodes: `ottla serve --nodes 3`. Each partition has one replica."""

    name = "ottla"
    is_cluster = True

    def __init__(
        self, folder: Path, port: int = 0, *, overrides: Mapping[str, str] | None = None, nodes: int = NODES
    ) -> None:
        super().__init__(folder, port, overrides=ONE_REPLICA | dict(overrides or {}))
        self._ports = [port] * nodes
        #: The processes of the nodes, as they were when all of them answered.
        self.pids: list[int] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    def command(self) -> list[str]:
        command = super().command()
        command[command.index("--listen") + 1] = self.bootstrap
        return [*command, "--nodes", str(len(self._ports))]

    def await_ready(self, process: Process, deadline: float) -> None:
        ready = self.read_ready_line(process, deadline)
        self._ports = [node["port"] for node in ready["nodes"]]
        self.pids = [node["pid"] for node in ready["nodes"]]
        self.port = self._ports[0]


class OttlaOnEtcd(OttlaCluster):
    """Three nodes whose metadata is in etcd, which goes on while they are stopped or killed."""

    def __init__(self, folder: Path, port: int = 0, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, port, overrides=overrides)
        self._etcd: Etcd | None = None

    def command(self) -> list[str]:
        assert self._etcd is not None
        return [*super().command(), "--metadata", f"etcd://{self._etcd.hosts}/compat"]

    def spawn(self) -> None:
        if self._etcd is None:
            self._etcd = Etcd(self.folder / "etcd")
            self._etcd.start()
        super().spawn()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            if self._etcd is not None:
                self._etcd.close()
