"""`ottla serve`: the ready line, the end, and what it refuses."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.client.client import Client
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic

Make = Callable[..., Any]


@pytest.fixture
def start(broker: Any, tmp_path: Path) -> Make:
    return lambda *flags, **options: type(broker)(tmp_path / "other", *flags, **options)


def refusal(broker: Any, *flags: str) -> str:
    done = broker.run("serve", *flags, check=False)
    assert done.returncode == 1
    assert done.stdout == b""
    text = done.stderr.decode()
    assert "Traceback" not in text
    assert text.count("\n") == 1, text
    return str(text)


def test_the_ready_line_is_json_for_programs(broker: Any) -> None:
    assert broker.ready["event"] == "ready"
    assert broker.ready["host"] == "127.0.0.1"
    assert broker.ready["port"] > 0
    assert broker.ready["node_id"] == 1


def test_the_ready_line_is_for_people_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*_ottla(), "serve", "--port", "0", "--data-dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    line = os.read(ours, 1000).decode()
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    os.close(ours)
    assert line.startswith("Ottla ")
    assert "ready on 127.0.0.1:" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_stops_in_order_and_marks_the_folder_clean(broker: Any, tmp_path: Path, number: int) -> None:
    broker.run("produce", "t", stdin=b"a\nb\n")
    assert broker.stop(number) == 0
    node = json.loads((tmp_path / "data" / "node-1" / "node.json").read_text())
    assert node["clean_shutdown"] is True


def test_what_is_in_flight_is_answered_before_it_stops(broker: Any) -> None:
    broker.run("topic", "create", "t")
    with Client([("127.0.0.1", broker.ready["port"])]) as client:
        topic = client.topic("t")
        connection = client.broker(1)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        wait = FetchRequest(
            max_wait_ms=600_000,
            min_bytes=1,
            max_bytes=1000,
            session_epoch=-1,
            topics=[FetchTopic(topic="t", topic_id=topic.topic_id, partitions=[partition])],
        )
        connection.send(wait)
        # A later request on another connection is answered, so the broker has had the time to take this one.
        broker.run("topic", "list")
        assert broker.stop() == 0
        answer = connection.receive()
    (answered,) = answer.responses[0].partitions
    assert (answered.error_code, answered.high_watermark, bytes(answered.records or b"")) == (0, 0, b"")


def test_acknowledged_records_survive_a_kill(broker: Any, tmp_path: Path) -> None:
    broker.run("topic", "create", "t", "-p", "3")
    broker.run("produce", "t", "-K", ":", stdin=b"".join(b"k%d:v%d\n" % (i, i) for i in range(1000)))
    broker.stop(signal.SIGKILL)
    again = type(broker)(tmp_path / "data")
    lines = again.run("consume", "t").stdout.splitlines()
    assert again.stop() == 0
    assert sorted(lines) == sorted(b"v%d" % i for i in range(1000))


def test_a_crash_of_the_interpreter_says_where_it_was(start: Make, tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        broker = start(log=log)
    assert broker.stop(signal.SIGSEGV) == -signal.SIGSEGV
    told = (tmp_path / "log").read_text()
    assert "Fatal Python error: Segmentation fault" in told
    assert "cli/serve/node_process.py" in told


def test_a_second_broker_on_the_folder_is_refused(broker: Any, tmp_path: Path) -> None:
    text = refusal(broker, "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert f"is in use by process {broker.process.pid} (" in text
    assert "choose another --data-dir" in text
    assert str(tmp_path / "data") in text


def test_a_port_in_use_is_refused(broker: Any, tmp_path: Path) -> None:
    text = refusal(broker, "--listen", broker.address, "--data-dir", str(tmp_path / "other"))
    assert "Address already in use" in text
    assert "--port" in text
    assert not (tmp_path / "other").exists()


def test_a_port_that_cannot_be_is_wrong_usage(broker: Any) -> None:
    done = broker.run("serve", "--port", "99999", check=False)
    assert done.returncode == 2
    assert b"'99999' is not a port: write a number from 0 to 65535" in done.stderr


def test_it_warns_when_it_listens_beyond_this_machine(start: Make, tmp_path: Path) -> None:
    lines = {}
    for host in ("127.0.0.1", "0.0.0.0"):
        with (tmp_path / host).open("wb") as log:
            assert start("--listen", f"{host}:0", log=log).stop() == 0
        lines[host] = (tmp_path / host).read_text()
    assert "no authentication" not in lines["127.0.0.1"]
    (warning,) = [line for line in lines["0.0.0.0"].splitlines() if "no authentication" in line]
    assert "0.0.0.0:" in warning
    assert "firewall" in warning


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--set", "num.partitons=3"], "Did you mean num.partitions?"),
        (["--set", "num.partitions=many"], "num.partitions"),
        (["--listen", "somewhere"], "'somewhere' is not an address to listen on: write HOST:PORT"),
        (["--listen", "9092"], "'9092' is not an address to listen on: write HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "ports go from 0 to 65535"),
        (["--port", "0", "--http", "198.51.100.1:0"], "cannot listen on 198.51.100.1"),
        (
            ["--port", "0", "--http", "127.0.0.1:0", "--console", "127.0.0.1:1"],
            "the console is at the address of --http",
        ),
        (["--listen", "0.0.0.0:0", "--advertise", "0.0.0.0"], "cannot be advertised"),
        (["--set", "listeners=SSL://127.0.0.1:0"], "SSL"),
        (["--config", "/nonexistent/server.properties"], "/nonexistent/server.properties"),
        (["--data-dir", "/proc/nowhere"], "/proc/nowhere"),
        (["--listen", "198.51.100.1:0"], "cannot listen on 198.51.100.1"),
        (["--listen", "198.51.100.1:0", "--secure"], "cannot listen on 198.51.100.1"),
        (["--listen", "198.51.100.1:0", "--secure", "--nodes", "2"], "cannot listen on 198.51.100.1"),
        (["--metadata", "etcd://127.0.0.1:1/x"], "etcd cannot be reached"),
        (["--port", "0", "--registry", "198.51.100.1:0"], "cannot listen on 198.51.100.1"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(broker: Any, tmp_path: Path, flags: list[str], words: str) -> None:
    if "--data-dir" not in flags:
        flags = ["--data-dir", str(tmp_path / "other"), *flags]
    if not {"--listen", "--set"} & set(flags):
        flags = ["--port", "0", *flags]
    assert words in refusal(broker, *flags)
    assert not (tmp_path / "other").exists()


def test_a_refused_start_takes_away_only_what_it_has_made(broker: Any, tmp_path: Path) -> None:
    unreachable = ("--port", "0", "--metadata", "etcd://127.0.0.1:1/x")
    configured = tmp_path / "configured"
    refusal(broker, *unreachable, "--set", f"log.dirs={configured}")
    assert not configured.exists()
    configured.mkdir()
    refusal(broker, *unreachable, "--data-dir", str(configured))
    assert (configured / "node-1/node.json").exists()
    nodes = tmp_path / "nodes"
    done = broker.run("serve", *unreachable, "--nodes", "2", "--data-dir", str(nodes), check=False)
    assert (done.returncode, nodes.exists()) == (1, False)


def test_settings_from_a_file_and_flags(broker: Any, tmp_path: Path, start: Make) -> None:
    settings = tmp_path / "ottla.toml"
    settings.write_text('num.partitions = 4\n[ottla.log]\nlevel = "warning"\n')
    other = start("--config", str(settings), "--set", "node.id=7", "--advertise", "broker.example:1234")
    assert other.ready == {"event": "ready", "host": "broker.example", "port": 1234, "node_id": 7}
    assert other.stop() == 0


def test_several_listeners(start: Make) -> None:
    other = start("--listen", "127.0.0.1:0", "--listen", "localhost:0")
    assert other.ready["host"] == "127.0.0.1"
    assert other.stop() == 0


def _ottla() -> list[str]:
    import sys

    return [sys.executable, "-m", "ottla.cli"]
