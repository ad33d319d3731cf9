"""A broker behind `ottla proxy`: clients meet the proxy alone, and what happens to the broker happens behind it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from compat_tests.apache_kafka import ApacheKafka, ApacheKafkaCluster
from compat_tests.ottla_broker import OttlaBroker, OttlaCluster
from compat_tests.process import HOST, STOP_TIMEOUT_S, BrokerProcess, BrokerStartError, await_metadata


class ProxiedBroker(BrokerProcess):
    """A broker and its proxy. `stop`, `kill` and `start` are the broker's; the proxy lives as long as the scenario."""

    behind: Callable[..., BrokerProcess]
    behind_name: str
    filters = ""

    def __init__(self, folder: Path, port: int = 0, *, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, port)
        self.upstream = self.behind(folder / "upstream", overrides=overrides)
        self.proxy_log_path = folder / "proxy.log"
        self.folder, self.log_path = self.upstream.folder, self.upstream.log_path
        self._proxy: subprocess.Popen[str] | None = None
        self._is_running = False

    @property
    def pid(self) -> int:
        return self.upstream.pid

    def start(self) -> None:
        self.upstream.start()
        self._is_running = True
        if self._proxy is None:
            self._proxy = self._start_proxy()
        await_metadata(self.port, self._proxy, time.monotonic() + self.start_timeout_s)

    def stop(self) -> int:
        self._is_running = False
        return self.upstream.stop()

    def kill(self) -> None:
        self._is_running = False
        self.upstream.kill()

    def wait(self) -> int:
        return self.upstream.wait()

    def __exit__(self, *raised: object) -> None:
        if self._proxy is not None:
            self._proxy.send_signal(signal.SIGTERM)
            code = self._proxy.wait(STOP_TIMEOUT_S)
            assert self._proxy.stdout is not None
            self._proxy.stdout.close()
            assert code == 0, f"the proxy ended with exit code {code}\n{self.proxy_log_path.read_text()}"
        if self._is_running:
            self.stop()

    def _start_proxy(self) -> subprocess.Popen[str]:
        flags: list[str] = []
        if self.filters:
            config = self.proxy_log_path.with_name("proxy.toml")
            config.write_text(self.filters)
            flags = ["--config", str(config)]
        process, self.port = start_proxy(self.upstream.bootstrap, self.proxy_log_path, self.port, *flags)
        return process


def start_proxy(upstream: str, log_path: Path, port: int = 0, *flags: str) -> tuple[subprocess.Popen[str], int]:
    """A proxy in front of these addresses, and its port; BrokerStartError with its log if it does not start."""
    program = str(Path(sys.executable).parent / "ottla")
    command = [program, "proxy", "--upstream", upstream, "--listen", f"{HOST}:{port}", *flags]
    with log_path.open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait()
        raise BrokerStartError(f"the proxy did not start\n{log_path.read_text()}")
    return process, json.loads(line)["port"]


class ProxiedOttla(ProxiedBroker):
    """Ottla behind the proxy."""

    name, behind, behind_name = OttlaBroker.name, OttlaBroker, "ottla"


class ProxiedKafka(ProxiedBroker):
    """Apache Kafka behind the proxy."""

    name, behind, behind_name = ApacheKafka.name, ApacheKafka, "kafka"


class ProxiedOttlaCluster(ProxiedBroker):
    """Three nodes of Ottla behind one proxy."""

    name, behind, behind_name, is_cluster = OttlaCluster.name, OttlaCluster, "ottla3", True


class ProxiedKafkaCluster(ProxiedBroker):
    """Three nodes of Apache Kafka behind one proxy."""

    name, behind, behind_name, is_cluster = ApacheKafkaCluster.name, ApacheKafkaCluster, "kafka3", True


class TenantOfOttla(ProxiedBroker):
    """Ottla behind the proxy, as one tenant of it."""

    name, behind, behind_name = OttlaBroker.name, OttlaBroker, "ottla-tenants"
    filters = '[[filter]]\ntype = "tenants"\nprefix = "tenant-1."\n'


PROXIED = (ProxiedOttla, ProxiedKafka, ProxiedOttlaCluster, ProxiedKafkaCluster, TenantOfOttla)
