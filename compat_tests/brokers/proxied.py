"""A broker behind `ottla proxy`: clients meet the proxy alone, and what happens to the broker happens behind it."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from compat_tests.brokers.apache_kafka import ApacheKafka, ApacheKafkaCluster
from compat_tests.brokers.ottla_broker import OttlaBroker, OttlaCluster
from compat_tests.brokers.process import HOST, STOP_TIMEOUT_S, BrokerProcess, BrokerStartError, await_metadata


class ProxiedBroker(BrokerProcess):
    """A broker and its proxy. `stop`, `kill` and `start` are the broker's; the proxy lives as long as the scenario."""

    behind: Callable[..., BrokerProcess]
    behind_name: str

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

    def flags(self, folder: Path) -> Sequence[str]:
        """More of what the proxy is told."""
        return ()

    def filters(self, folder: Path) -> str:
        """The filters' tables in the proxy's TOML; their files may be in the folder."""
        return ""

    def _start_proxy(self) -> subprocess.Popen[str]:
        flags = [*self.flags(self.proxy_log_path.parent)]
        if filters := self.filters(self.proxy_log_path.parent):
            config = self.proxy_log_path.with_name("proxy.toml")
            config.write_text(filters)
            flags += ["--config", str(config)]
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

    def filters(self, folder: Path) -> str:
        return '[[filter]]\ntype = "tenants"\nprefix = "tenant-1."\n'


class CachedOttla(ProxiedBroker):
    """Ottla behind a proxy that keeps what is fetched."""

    name, behind, behind_name = OttlaBroker.name, OttlaBroker, "ottla-cache"

    def flags(self, folder: Path) -> Sequence[str]:
        return ("--cache", "256MiB", "--cache-dir", str(folder))


class CachedKafka(ProxiedBroker):
    """Apache Kafka behind a proxy that keeps what is fetched."""

    name, behind, behind_name = ApacheKafka.name, ApacheKafka, "kafka-cache"

    def flags(self, folder: Path) -> Sequence[str]:
        return ("--cache", "256MiB", "--cache-dir", str(folder))


class FilteredOttla(ProxiedBroker):
    """Ottla behind a proxy that encrypts all values, writes everything down, and looks at every record otherwise."""

    name, behind, behind_name = OttlaBroker.name, OttlaBroker, "ottla-filters"

    def filters(self, folder: Path) -> str:
        keys, schema = folder / "keys.toml", folder / "schema.json"
        keys.write_text(f'current = "k"\n[keys]\nk = "{base64.b64encode(bytes(32)).decode()}"\n')
        keys.chmod(0o600)
        schema.write_text("{}")
        tables: list[dict[str, object]] = [
            {"type": "audit", "file": str(folder / "audit.jsonl")},
            {"type": "recorder", "file": str(folder / "recording")},
            {"type": "limits", "max-record-bytes": 10_000_000, "max-partitions": 1000},
            {"type": "validation", "json-schema": str(schema), "topics": "json-.*"},
            {"type": "encryption", "keys": {"file": str(keys)}},
        ]
        return "\n".join(map(filter_toml, tables))


def filter_toml(table: Mapping[str, object]) -> str:
    """A filter's table in the proxy's TOML."""
    return "[[filter]]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in table.items())


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_toml(it)}' for name, it in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


NOT_OF_TENANTS: Mapping[str, str] = {
    # Share groups, streams groups, quotas and telemetry.
    "test_client_metrics.py": "",
    "test_quotas_tool.py": "",
    "test_quotas_wire.py": "",
    "test_share_groups.py": "",
    "test_streams_groups.py": "",
    "test_wire_share.py": "",
    "test_wire_share_state.py": "",
    "test_wire_streams.py": "",
    # They name topics by their ids.
    "test_a_follower_that_is_no_replica": "",
    "test_a_session_and_requests_that_do_not_fit_it": "",
    "test_a_session_tells_what_changed": "13,18",
    "test_a_topic_is_deleted_and_the_broker_killed": "",
    "test_a_proxy_that_was_killed_begins_with_nothing": "",
    "test_a_topic_that_becomes_compacted": "",
    "test_a_topic_that_is_deleted_needs_no_marker": "",
    "test_a_topic_that_is_made_again": "",
    "test_commits_for_a_topic_that_was_made_again": "",
    "test_commits_of_a_group_without_members": "10",
    "test_commits_of_a_stable_group": "10",
    "test_commits_of_the_consumer_protocol": "10",
    "test_every_version_of_fetch": "",
    "test_every_version_of_produce": "",
    "test_fetch_of_what_does_not_exist": "13,18",
    "test_fetching_offsets": "10",
    "test_it_serves_what_the_broker_answers": "",
    "test_produce_to_the_zero_topic_id": "",
    "test_produce_to_what_does_not_exist": "13",
    "test_the_topic_of_a_session_is_deleted": "",
    "test_versions_in_which_offsets_are_stored": "",
    "test_what_is_deleted_is_out_of_range": "",
    # They look at internal topics.
    "test_adding_partitions": "0,1,2,3",
    "test_kafkas_formatters_read_the_offsets_topic": "",
    "test_producers_of_what_does_not_exist": "",
    # They send markers of transactions, as brokers do.
    "test_markers_of_an_administrator": "",
    "test_markers_of_older_epochs": "",
    "test_markers_of_transactions_v2_need_the_next_epoch": "",
    "test_the_tool_aborts_where_a_transaction_hangs": "",
}
"""The scenarios of what tenants are not offered: whole files, all of a scenario's variants, or those that end so."""


def is_of_tenants(file: str, name: str) -> bool:
    """Whether a scenario, by its file's name and its own, asks for nothing that tenants are not offered."""
    if file in NOT_OF_TENANTS:
        return False
    function, _, variant = name.partition("[")
    endings = NOT_OF_TENANTS.get(function)
    return endings is None or (endings != "" and variant.rstrip("]").rpartition("-")[2] not in endings.split(","))


PROXIED = (
    ProxiedOttla,
    ProxiedKafka,
    ProxiedOttlaCluster,
    ProxiedKafkaCluster,
    TenantOfOttla,
    FilteredOttla,
    CachedOttla,
    CachedKafka,
)
