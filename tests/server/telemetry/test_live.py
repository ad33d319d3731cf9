"""A broker process of its own, used by a client, and scraped over HTTP as Prometheus does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families


class Process:
    """`ottla serve` with an HTTP port."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "ottla.cli", "serve", "--port", "0", "--http", "127.0.0.1:0"]
        command += ["--data-dir", str(folder / "data"), "--set", "offsets.topic.num.partitions=1"]
        command += ["--set", "group.initial.rebalance.delay.ms=0", "--debug-loop", "1000"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        self.address, self.url = f"{ready['host']}:{ready['port']}", ready["http"]

    def get(self, path: str) -> tuple[str, str]:
        """Content type and body."""
        with urlopen(self.url + path, timeout=120) as response:
            return response.headers["content-type"], response.read().decode()

    def scrape(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        kind, text = self.get("/metrics")
        assert kind == "text/plain; version=0.0.4; charset=utf-8"
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(120)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    running = Process(tmp_path)
    yield running
    if running.process.poll() is None:
        running.stop()


def test_what_a_client_did_is_seen(broker: Process) -> None:
    assert broker.get("/healthz")[1] == "ok\n"
    assert json.loads(broker.get("/readyz")[1])["ready"] is True

    producer = Producer({"bootstrap.servers": broker.address})
    for number in range(100):
        producer.produce("orders", b"value %d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    messages: list[Any] = []
    while len(messages) < 60:
        messages += consumer.consume(60 - len(messages), 5)
    consumer.commit(asynchronous=False)

    found = broker.scrape()
    of_partition = (("partition", "0"), ("topic", "orders"))
    of_group = (("consumergroup", "billing"), ("topic", "orders"))
    assert found["kafka_topic_partition_current_offset", of_partition] == 100
    assert found["kafka_consumergroup_members", (("consumergroup", "billing"),)] == 1
    assert found["kafka_consumergroup_lag_sum", of_group] == 40
    assert found["ottla_topic_messages_in_total", (("topic", "orders"),)] == 100
    assert found["ottla_requests_total", (("api", "produce"),)] >= 1
    assert found["ottla_loop_lag_seconds_count", ()] >= 0
    assert found["ottla_loop_holds_total", ()] >= 0
    consumer.close()

    assert broker.stop() == 0
    lines = [json.loads(line) for line in broker.log.read_text().splitlines()]
    assert {line["level"] for line in lines} <= {"info", "warning"}
    (ready,) = [line for line in lines if line["event"].startswith("ready")]
    assert (ready["http"], ready["node"]) == (broker.url, 1)
    (created,) = [line for line in lines if "was created" in line["event"] and line["topic"] == "orders"]
    assert created["partitions"] == 1
    assert any(line.get("group") == "billing" and line.get("members") == 1 for line in lines)
    assert any("stopping" in line["event"] and line["signal"] == "SIGTERM" for line in lines)
    assert any(line["event"] == "stopped in order" for line in lines)


def test_one_line_says_why_it_cannot_have_its_http_port(broker: Process, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli", "serve", "--port", "0", "--data-dir", str(tmp_path / "other")]
    taken = broker.url.removeprefix("http://")
    done = subprocess.run([*command, "--http", taken], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "--http" in done.stderr
    assert done.stderr.count("\n") == 1


def test_after_a_kill_a_line_says_that_it_recovers(broker: Process, tmp_path: Path) -> None:
    broker.process.kill()
    broker.process.wait(120)
    assert broker.process.stdout is not None
    broker.process.stdout.close()
    again = Process(tmp_path)
    assert again.stop() == 0
    lines = [json.loads(line) for line in again.log.read_text().splitlines()]
    (recovers,) = [line for line in lines if "was not closed in order" in line["event"]]
    assert recovers["path"].endswith("node-1")
