"""`ottla top`: what two samples say, and how it is drawn."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.cluster.top import compare, lines
from ottla.cli.cluster.top_sample import NodeSample, Sample, _sums
from ottla.client.offsets import TopicPartition


def sample(seconds: float, ends: list[int], **fields: Any) -> Sample:
    made = Sample(seconds, {TopicPartition("t", index): end for index, end in enumerate(ends)})
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_two_samples_make_rates() -> None:
    before = sample(
        10.0, [100, 50], sizes={"t": 1000}, lags={"g": 20}, states={"g": "Stable"}, metrics={"cpu_seconds": 1.0}
    )
    after = sample(
        12.0,
        [300, 50, 7],
        sizes={"t": 5000},
        lags={"g": 60},
        states={"g": "Stable"},
        metrics={"cpu_seconds": 1.5, "memory_bytes": 5e7, "connections": 3.0},
    )
    rates = compare(before, after)
    assert rates["topics"]["t"] == {
        "partitions": 3,
        "records_per_second": 100.0,
        "end_offsets": 357,
        "size_bytes": 5000,
        "bytes_per_second": 2000.0,
    }
    assert rates["groups"]["g"] == {"state": "Stable", "lag": 60, "lag_per_second": 20.0}
    assert rates["broker"] == {"memory_bytes": 5e7, "connections": 3.0, "cpu_seconds_per_second": 0.25}
    shown = lines(rates)
    assert "100 records/s" in shown[0]
    assert "memory 50.0 MB   3 connections" in shown[0]


def test_the_filters_of_a_proxy_are_shown_with_what_they_cost() -> None:
    before = sample(10.0, [], filters={"a": {"calls": 100.0, "seconds": 1.0}})
    after = sample(
        12.0, [], filters={"a": {"calls": 300.0, "seconds": 1.5, "refusals": 4.0}, "b": {"calls": 0.0, "seconds": 0.0}}
    )
    rates = compare(before, after)
    assert rates["filters"]["a"] == {"calls_per_second": 100.0, "seconds_per_second": 0.25, "refusals_per_second": 2.0}
    shown = [line.split() for line in lines(rates)[-3:]]
    assert shown[0] == ["FILTER", "MESSAGES/S", "EACH", "TIME", "REFUSED/S"]
    assert shown[1] == ["a", "100", "2.50", "ms", "25.0%", "2"]
    assert shown[2] == ["b", "0", "0.0%", "0"]


def test_a_topic_that_was_made_anew_has_no_negative_rate() -> None:
    rates = compare(sample(1.0, [100]), sample(2.0, [3]))
    assert rates["topics"]["t"]["records_per_second"] == 0.0


@pytest.mark.parametrize(("topics", "groups", "shown"), [(50, 50, (5, 5)), (2, 50, (2, 8)), (50, 1, (9, 1))])
def test_a_small_terminal_shows_the_busiest(topics: int, groups: int, shown: tuple[int, int]) -> None:
    busy = {"partitions": 1, "end_offsets": 0, "size_bytes": 0, "bytes_per_second": 0.0}
    rates = {
        "broker": {},
        "topics": {f"t{n:02}": busy | {"records_per_second": float(n)} for n in range(topics)},
        "groups": {f"g{n:02}": {"state": "Stable", "lag": n, "lag_per_second": 0.0} for n in range(groups)},
        "filters": {},
        "nodes": {},
    }
    drawn = lines(rates, 10)
    assert [sum(line.startswith(letter) for line in drawn) for letter in ("t", "g")] == list(shown)
    assert any(line.startswith(f"t{topics - 1:02}") for line in drawn)
    assert any(line.startswith(f"g{groups - 1:02}") for line in drawn)


def test_several_nodes_have_a_line_each() -> None:
    leaders = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2, TopicPartition("t", 2): 2}
    nodes = {1: NodeSample(1000, 1, {"cpu_seconds": 1.0}), 2: NodeSample(3000, 2)}
    later = {
        1: NodeSample(2000, 1, {"cpu_seconds": 1.5, "memory_bytes": 5e7, "connections": 3.0}),
        2: NodeSample(5000, 2),
    }
    rates = compare(
        sample(10.0, [100, 50, 0], leaders=leaders, nodes=nodes),
        sample(12.0, [300, 60, 10], leaders=leaders, nodes=later),
    )
    assert rates["nodes"][2] == {"leads": 2, "records_per_second": 10.0, "size_bytes": 5000, "groups": 2}
    shown = [line.split() for line in lines(rates)]
    head = shown.index(["NODE", "LEADS", "RECORDS/S", "SIZE", "GROUPS", "CPU", "MEMORY", "CONNECTIONS"])
    assert shown[head + 1] == ["1", "1", "100", "2.0", "kB", "1", "25%", "50.0", "MB", "3"]
    assert shown[head + 2] == ["2", "2", "10", "5.0", "kB", "2", "-", "-", "-"]
    rates["nodes"].pop(2)
    assert not any("NODE" in line for line in lines(rates))


def test_the_page_of_all_nodes_is_read_node_by_node() -> None:
    page = 'process_cpu_seconds_total{node="1"} 1.5\nprocess_cpu_seconds_total{node="12"} 2\nottla_connections 7\n'
    assert _sums(page) == {"cpu_seconds": 3.5, "connections": 7.0}
    assert _sums(page, 1) == {"cpu_seconds": 1.5}


def test_once_as_json_and_as_text(broker: Any) -> None:
    broker.run("produce", "t", stdin=b"a\nb\n")
    rates = json.loads(broker.run("top", "--json", "--interval", "0.01").stdout)
    assert rates["topics"]["t"]["end_offsets"] == 2
    assert b"TOPIC" in broker.run("top", "--once", "--interval", "0.01").stdout


def test_memory_and_connections_come_from_the_metrics(broker: Any, broker_class: type[Any], tmp_path: Path) -> None:
    other = broker_class(tmp_path / "other", "--http", "127.0.0.1:0")
    rates = json.loads(other.run("top", "--json", "--interval", "0.01", "--metrics", other.ready["http"]).stdout)
    assert other.stop() == 0
    assert rates["broker"]["connections"] >= 1
    assert rates["broker"]["memory_bytes"] > 1e6
    refused = broker.run("top", "--once", "--metrics", "127.0.0.1:1", check=False)
    assert refused.returncode == 1
    assert b"cannot read /metrics" in refused.stderr


def test_on_a_terminal_it_redraws_and_puts_the_screen_back(broker: Any) -> None:
    broker.run("produce", "orders", stdin=b"a\n")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ottla.cli", "top", "--interval", "0.05", "-b", broker.address]
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    seen = b""
    try:
        while seen.count(b"orders") < 2:
            seen += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        while not seen.endswith(b"\x1b[?1049l"):
            seen += os.read(ours, 4096)
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert seen.startswith(b"\x1b[?1049h")
