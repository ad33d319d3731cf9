"""`ottla config`, `quota`, `cluster` and `log-dirs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def configs(broker: Any, *resource: str) -> dict[str, str]:
    listed = json.loads(broker.run("config", "get", *resource, "--json").stdout)
    return {config["name"]: config["value"] for config in listed}


def refusal(broker: Any, *arguments: str) -> str:
    done = broker.run(*arguments, check=False)
    assert done.returncode == 1
    assert done.stdout == b""
    return str(done.stderr.decode())


def test_settings_of_a_topic(broker: Any) -> None:
    broker.run("topic", "create", "t")
    assert configs(broker, "topic", "t") == {}
    broker.run("config", "set", "topic", "t", "retention.ms=1000", "cleanup.policy=compact")
    assert configs(broker, "topic", "t") == {"cleanup.policy": "compact", "retention.ms": "1000"}
    broker.run("config", "append", "topic", "t", "cleanup.policy=delete")
    assert configs(broker, "topic", "t")["cleanup.policy"] == "compact,delete"
    broker.run("config", "subtract", "topic", "t", "cleanup.policy=compact")
    assert configs(broker, "topic", "t")["cleanup.policy"] == "delete"
    broker.run("config", "unset", "topic", "t", "retention.ms", "cleanup.policy")
    assert configs(broker, "topic", "t") == {}
    assert configs(broker, "topic", "t", "retention.ms") == {"retention.ms": "604800000"}
    assert len(configs(broker, "topic", "t", "--all")) > 25
    table = broker.run("config", "get", "topic", "t", "retention.ms").stdout.decode().splitlines()
    assert table[1].split() == ["retention.ms", "604800000", "(7d)", "default", "at", "any", "time"]


def test_settings_of_brokers_groups_and_loggers(broker: Any) -> None:
    broker.run("config", "set", "broker", "1", "log.cleaner.threads=2")
    assert configs(broker, "broker", "1") == {"log.cleaner.threads": "2"}
    broker.run("config", "set", "broker", "all", "log.retention.ms=1000000")
    assert configs(broker, "broker", "all") == {"log.retention.ms": "1000000"}
    broker.run("config", "set", "broker", "all", "log.retention.ms=7d")
    assert configs(broker, "broker", "all") == {"log.retention.ms": "604800000"}
    broker.run("config", "set", "group", "readers", "consumer.session.timeout.ms=50000")
    assert configs(broker, "group", "readers") == {"consumer.session.timeout.ms": "50000"}
    broker.run("config", "set", "client-metrics", "m", "interval.ms=1000")
    assert configs(broker, "client-metrics", "m") == {"interval.ms": "1000"}
    broker.run("config", "set", "logger", "1", "ottla.server=DEBUG")
    assert configs(broker, "logger", "1")["ottla.server"] == "DEBUG"


def test_what_cannot_be_set_is_said(broker: Any) -> None:
    broker.run("topic", "create", "orders")
    assert "Did you mean retention.ms?" in refusal(broker, "config", "set", "topic", "orders", "retention.mss=1")
    assert "Not a number" in refusal(broker, "config", "set", "topic", "orders", "retention.ms=x")
    assert "num.partitions" in refusal(broker, "config", "set", "broker", "1", "num.partitions=3")
    assert "no setting nonsense: see them with --all" in refusal(broker, "config", "get", "topic", "orders", "nonsense")
    assert "not a broker's id" in refusal(broker, "config", "get", "broker", "one")
    assert "no broker 9" in refusal(broker, "config", "get", "broker", "9")
    assert "did you mean orders?" in refusal(broker, "topic", "describe", "order")
    assert "did you mean orders?" in refusal(broker, "consume", "orderz")


def test_settings_of_ottlas_own(broker: Any) -> None:
    """A broker tells them only to who names them, and `--all` does."""
    assert configs(broker, "broker", "1", "ottla.run.bytes") == {"ottla.run.bytes": "262144"}
    assert "ottla.run.bytes" in configs(broker, "broker", "1", "--all")
    broker.run("topic", "create", "own")
    assert "ottla.records.validate" in configs(broker, "topic", "own", "--all")
    broker.run("config", "set", "topic", "own", "ottla.records.validate=all")
    assert configs(broker, "topic", "own") == {"ottla.records.validate": "all"}


def test_quotas(broker: Any) -> None:
    broker.run("quota", "set", "--user", "ann", "producer_byte_rate=1024", "request_percentage=50")
    broker.run("quota", "set", "--user", "ann", "--default-client", "consumer_byte_rate=2048")
    broker.run("quota", "set", "--ip", "127.0.0.1", "connection_creation_rate=10")
    listed = json.loads(broker.run("quota", "list", "--json").stdout)
    assert {json.dumps(it["entity"], sort_keys=True): it["quotas"] for it in listed} == {
        '{"user": "ann"}': {"producer_byte_rate": 1024.0, "request_percentage": 50.0},
        '{"client-id": null, "user": "ann"}': {"consumer_byte_rate": 2048.0},
        '{"ip": "127.0.0.1"}': {"connection_creation_rate": 10.0},
    }
    broker.run("quota", "set", "--user", "bob", "producer_byte_rate=1MiB")
    rows = [line.split() for line in broker.run("quota", "list").stdout.decode().splitlines()]
    assert ["user", "ann", "request_percentage", "50"] in rows
    assert ["user", "bob", "producer_byte_rate", "1048576"] in rows
    broker.run("quota", "unset", "--user", "bob", "producer_byte_rate")
    broker.run("quota", "unset", "--user", "ann", "producer_byte_rate", "request_percentage")
    assert len(json.loads(broker.run("quota", "list", "--json").stdout)) == 2
    assert "whose quota" in refusal(broker, "quota", "set", "producer_byte_rate=1")
    assert "foo" in refusal(broker, "quota", "set", "--user", "ann", "foo=1")
    misspelt = refusal(broker, "quota", "set", "--user", "ann", "produce_byte_rate=1")
    assert "Did you mean producer_byte_rate?" in misspelt
    assert broker.run("quota", "set", "--user", "ann", "producer_byte_rate=x", check=False).returncode == 2


def test_the_cluster(broker: Any) -> None:
    cluster = json.loads(broker.run("cluster", "describe", "--json").stdout)
    host, _, port = broker.address.rpartition(":")
    assert cluster["controller"] == 1
    assert cluster["brokers"] == [{"id": 1, "host": host, "port": int(port), "rack": None, "fenced": False}]
    features = {it["feature"]: it for it in json.loads(broker.run("cluster", "features", "--json").stdout)}
    assert features["group.version"]["finalized"] == 1
    assert broker.run("cluster", "health").stdout.startswith(b"healthy: 1 broker, ")
    apis = {it["api"]: it for it in json.loads(broker.run("cluster", "apis", "--json").stdout)}
    assert apis["Fetch"]["key"] == 1
    for action in ("describe", "features", "apis"):
        assert len(broker.run("cluster", action).stdout.splitlines()) > 1


def test_log_dirs(broker: Any, tmp_path: Any) -> None:
    broker.run("topic", "create", "t", "-p", "2")
    broker.run("topic", "create", "other")
    broker.run("produce", "t", "-p", "1", stdin=b"x" * 1000 + b"\n")
    (folder,) = json.loads(broker.run("log-dirs", "--json").stdout)
    assert folder["path"] == str(tmp_path / "data")
    assert 0 < folder["free"] < folder["total"]
    assert folder["topics"]["t"]["0"] == 0
    assert folder["topics"]["t"]["1"] > 1000
    (folder,) = json.loads(broker.run("log-dirs", "other", "--json").stdout)
    assert folder["topics"] == {"other": {"0": 0}}
    assert "1.1 kB" in broker.run("log-dirs", "t").stdout.decode()
    assert len(broker.run("log-dirs", "t", "--partitions").stdout.splitlines()) == 4


def test_what_is_stored_is_read_and_removed_while_no_broker_runs(broker: Any, tmp_path: Path) -> None:
    broker.run("topic", "create", "t", "--config", "retention.ms=5")
    broker.run("config", "set", "broker", "1", "log.retention.ms=7000", "sasl.jaas.config=secret")
    broker.stop()
    offline = ("--offline", "--data-dir", str(tmp_path / "data"))
    stored = json.loads(broker.run("config", "get", "broker", "1", *offline, "--json").stdout)
    assert {it["name"]: it["value"] for it in stored} == {"log.retention.ms": "7000", "sasl.jaas.config": None}
    broker.run("config", "unset", "broker", "1", "log.retention.ms", *offline)
    assert json.loads(broker.run("config", "get", "broker", "1", "log.retention.ms", *offline, "--json").stdout) == []
    assert b"(hidden)" in broker.run("config", "get", "broker", "1", *offline).stdout
    broker.run("config", "unset", "topic", "t", "retention.ms", *offline)
    assert "is not stored" in refusal(broker, "config", "unset", "topic", "t", "retention.ms", *offline)
    assert "no topic" in refusal(broker, "config", "get", "topic", "absent", *offline)
