"""What brokers for tests are without the system calls that only Linux has, as on macOS.

`tests/without_linux` takes the calls away from the processes that these tests start, and from all that those start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TAKEN_AWAY = """
import ctypes, os, select, socket
assert not hasattr(select, "epoll")
assert not hasattr(os, "memfd_create")
assert not hasattr(os, "fdatasync")
assert not hasattr(socket, "TCP_KEEPIDLE")
assert not hasattr(ctypes.CDLL(None), "inotify_init1")
try:
    open("/proc/self/stat")
except FileNotFoundError:
    pass
else:
    raise AssertionError("/proc can be read")
"""

DISK = """
import sys
from ottla.testing import Broker

with Broker(data_dir=sys.argv[1], config={"log.flush.interval.messages": 1}) as broker:
    broker.produce("events", *range(1000), key="k")
    broker.restart()
    assert [record.json() for record in broker.records("events")] == list(range(1000))
"""

SECURE = """
from confluent_kafka import Producer
from ottla.testing import Broker

with Broker(users={"ann": "secret"}, tls=True) as broker:
    producer = Producer(broker.client_config("ann"))
    producer.produce("events", b"x")
    assert producer.flush(30) == 0
    assert [record.text for record in broker.records("events")] == ["x"]
"""

NODES = """
from ottla.testing import Cluster

with Cluster(2) as cluster:
    cluster.create_topic("events", 2)
    cluster.produce("events", *range(20))
    cluster.kill(1)
    cluster.start(1)
    assert sorted(record.json() for record in cluster.records("events")) == list(range(20))
"""

PROXY = """
import http.client, json, subprocess, sys
from ottla.client.client import Client
from ottla.testing import Broker

command = [sys.executable, "-m", "ottla.cli", "proxy", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
with Broker() as broker:
    broker.produce("events", "x")
    proxy = subprocess.Popen([*command, "--upstream", broker.bootstrap], stdout=subprocess.PIPE, text=True)
    try:
        ready = json.loads(proxy.stdout.readline())
        with Client([(ready["host"], ready["port"])], 10) as client:
            assert [topic.name for topic in client.metadata(None).topics] == ["events"]
        page = http.client.HTTPConnection(ready["http"].removeprefix("http://"), timeout=10)
        page.request("GET", "/metrics")
        answer = page.getresponse()
        assert answer.status == 200
        assert b"process_cpu_seconds_total" in answer.read()
        page.close()
    finally:
        proxy.terminate()
        proxy.wait(30)
        proxy.stdout.close()
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(TAKEN_AWAY, id="the calls are not there"),
        pytest.param(DISK, id="a broker on a disk"),
        pytest.param(SECURE, id="users and certificates"),
        pytest.param(NODES, id="several processes"),
        pytest.param(PROXY, id="the proxy"),
    ],
)
def test_it_works(program: str, tmp_path: Path) -> None:
    if program is SECURE:
        pytest.importorskip("cryptography")
    path = tmp_path / "program.py"
    path.write_text(program)
    # By this name it is one of those that find nothing of what was taken away.
    command = ["-W", "error", "-c", f"import runpy, sys; runpy.run_path({str(path)!r}, run_name='tests.program')"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests/without_linux")}
    done = subprocess.run(
        [sys.executable, *command, str(tmp_path / "data")],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
