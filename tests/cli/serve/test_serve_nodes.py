"""`ottla serve --nodes N`: one command, several processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.forked import run_forked

OTTLA = [sys.executable, "-m", "ottla.cli"]
START_SECONDS = 30


class Cluster:
    """The processes of one `ottla serve --nodes`, and what they log."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        self.data_dir = data_dir
        where = [] if "--listen" in flags else ["--port", "0"]
        command = [*OTTLA, "serve", *where, "--data-dir", str(data_dir), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._log = self.process.stderr
        self.logged: list[dict[str, Any]] = []
        self.ready = json.loads(self.process.stdout.readline())

    @property
    def address(self) -> str:
        return f"{self.ready['host']}:{self.ready['port']}"

    def pid_of(self, node_id: int) -> int:
        (node,) = [node for node in self.ready["nodes"] if node["node_id"] == node_id]
        return int(node["pid"])

    def wait_for(self, *words: str) -> dict[str, Any]:
        """The next log line with all of these words."""
        for text in self._log:
            self.logged.append(json.loads(text))
            if all(word in self.logged[-1]["event"] for word in words):
                return self.logged[-1]
        raise AssertionError(f"never logged {words}: {self.logged}")

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        environment = {"OTTLA_BOOTSTRAP": self.address, "PATH": "/usr/bin:/bin"}
        done = run_forked(arguments, stdin=stdin, environment=environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it, and read all that it still logs."""
        self.process.send_signal(number)
        self.logged += map(json.loads, self._log)
        code = self.process.wait(120)
        self._log.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


Start = Callable[..., Cluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Cluster] = []

    def begin(*flags: str) -> Cluster:
        started.append(Cluster(tmp_path / "data", *flags))
        return started[-1]

    yield begin
    for cluster in started:
        if cluster.process.poll() is None:
            cluster.stop()


def refusal(tmp_path: Path, *flags: str) -> str:
    done = run_forked(["serve", "--data-dir", str(tmp_path / "data"), *flags], stdin=b"", environment=os.environ)
    assert done.returncode == 1
    assert done.stdout == b""
    told = done.stderr.decode()
    *log, sentence = told.splitlines()
    assert "Traceback" not in told
    assert all(line.startswith("{") for line in log)
    return sentence.removeprefix("ottla serve: ")


def brokers(cluster: Cluster) -> list[int]:
    return [broker["id"] for broker in json.loads(cluster.run("cluster", "describe", "--json"))["brokers"]]


def is_clean(data_dir: Path, node_id: int) -> bool:
    return bool(json.loads((data_dir / f"node-{node_id}" / "node.json").read_text())["clean_shutdown"])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_all_nodes_begin_and_end_together(start: Start, number: int) -> None:
    cluster = start("--nodes", "3")
    assert cluster.ready["event"] == "ready"
    assert cluster.ready["node_id"] == 1
    assert [node["node_id"] for node in cluster.ready["nodes"]] == [1, 2, 3]
    assert brokers(cluster) == [1, 2, 3]
    assert cluster.stop(number) == 0
    assert [is_clean(cluster.data_dir, node_id) for node_id in (1, 2, 3)] == [True, True, True]
    assert not any(is_alive(node["pid"]) for node in cluster.ready["nodes"])
    # Each line says which node wrote it, but for those of the process that looks after them.
    ended = [line.get("logged_by") for line in cluster.logged if line["event"] == "stopped in order"]
    assert set(ended[:3]) == {1, 2, 3}
    assert ended[3:] == [None]


def test_topics_are_spread_over_the_nodes_and_outlive_them(start: Start) -> None:
    cluster = start("--nodes", "3")
    cluster.run("topic", "create", "t", "-p", "3")
    cluster.run("produce", "t", "-K", ":", stdin=b"".join(b"k%d:v%d\n" % (i, i) for i in range(300)))
    (described,) = json.loads(cluster.run("topic", "describe", "t", "--json"))
    assert cluster.stop() == 0
    again = start("--nodes", "3")
    lines = again.run("consume", "t").splitlines()
    assert sorted(lines) == sorted(b"v%d" % i for i in range(300))
    assert {partition["leader"] for partition in described["partitions"]} == {1, 2, 3}


def test_a_node_that_dies_is_started_again_on_its_port_and_the_others_go_on(start: Start) -> None:
    cluster = start("--nodes", "3")
    before = cluster.ready["nodes"]
    os.kill(cluster.pid_of(2), signal.SIGKILL)
    line = cluster.wait_for("node 2", "SIGKILL", "started again")
    assert line["level"] == "error"
    pid = int(cluster.wait_for("node 2 serves again")["event"].split()[-1].rstrip(")"))
    with socket.create_connection((before[1]["host"], before[1]["port"])):
        pass
    os.kill(pid, signal.SIGKILL)
    line = cluster.wait_for("node 2", "for the 2nd time in a row: it is started again in 0.5 s; the others go on")
    assert line["level"] == "critical"
    cluster.wait_for("node 2 serves again")
    assert is_alive(cluster.pid_of(1))
    assert is_alive(cluster.pid_of(3))
    assert cluster.stop() == 0


def test_a_service_manager_hears_of_all_nodes_from_one_process(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        cluster = start("--nodes", "2")
        assert manager.recv(1000).startswith(b"READY=1\nSTATUS=serving with 2 nodes on 127.0.0.1:")
        assert cluster.stop() == 0
        assert manager.recv(1000) == b"STOPPING=1"
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(1000)


def test_nodes_end_in_order_when_the_process_that_looks_after_them_is_killed(start: Start) -> None:
    cluster = start("--nodes", "2")
    cluster.process.kill()
    ended = [cluster.wait_for("stopped in order")["logged_by"] for _ in range(2)]
    assert sorted(ended) == [1, 2]
    assert is_clean(cluster.data_dir, 1)
    assert is_clean(cluster.data_dir, 2)
    assert cluster.stop() == -signal.SIGKILL


def test_a_frozen_node_does_not_hold_up_the_end(start: Start) -> None:
    cluster = start("--nodes", "2")
    os.kill(cluster.pid_of(2), signal.SIGSTOP)
    assert cluster.stop() == 0
    assert is_clean(cluster.data_dir, 2)


def test_a_folder_of_one_node_grows_to_a_cluster_and_does_not_shrink_unseen(start: Start, tmp_path: Path) -> None:
    single = start()
    single.run("produce", "t", stdin=b"a\n")
    assert single.stop() == 0
    cluster = start("--nodes", "3")
    assert brokers(cluster) == [1, 2, 3]
    assert cluster.run("consume", "t") == b"a\n"
    cluster.run("topic", "create", "spread", "-p", "6")
    assert cluster.stop() == 0
    data = tmp_path / "data"
    command = f"ottla serve --data-dir {data} --nodes 3"
    text = refusal(tmp_path, "--port", "0", "--nodes", "2")
    assert text.startswith(f"{data} holds data of node 3, which would not be served: start it with `{command}`")
    assert "`ottla cluster drain 3`" in text
    text = refusal(tmp_path, "--port", "0")
    assert text.startswith(f"{data} holds data of nodes 2, 3, which would not be served: start it with `{command}`")
    assert "to start only node 1, add --set node.id=1" in text
    # With node.id each node is started by itself.
    named = start("--set", "node.id=1")
    assert named.stop() == 0


def test_a_drained_node_may_be_left_out(start: Start) -> None:
    cluster = start("--nodes", "2")
    cluster.run("topic", "create", "spread", "-p", "4")
    cluster.run("cluster", "drain", "2")
    assert cluster.stop() == 0
    single = start()
    assert brokers(single) == [1]
    assert single.stop() == 0


def test_commands_on_a_folder_see_to_all_of_its_nodes(start: Start, tmp_path: Path) -> None:
    cluster = start("--nodes", "2")
    cluster.run("topic", "create", "t", "-p", "2")
    cluster.run("produce", "t", "-K", ":", stdin=b"".join(b"k%d:v%d\n" % (i, i) for i in range(100)))
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    cluster.run("backup", "--data-dir", str(cluster.data_dir), str(backup))
    assert cluster.stop() == 0
    assert sorted(path.name for path in backup.glob("node-*")) == ["node-1", "node-2"]
    report = json.loads(cluster.run("fsck", "--data-dir", str(cluster.data_dir), "--json"))
    assert [report["nodes"][node_id]["stores"] for node_id in ("1", "2")] == [1, 1]
    assert [line[:7] for line in cluster.run("fsck", "--data-dir", str(cluster.data_dir)).splitlines()] == [
        b"node 1:",
        b"node 2:",
    ]
    cluster.run("restore", str(backup), "--data-dir", str(restored))
    again = Cluster(restored, "--nodes", "2")
    try:
        assert len(again.run("consume", "t").splitlines()) == 100
    finally:
        assert again.stop() == 0


def test_the_doctor_looks_at_the_ports_of_all_nodes(tmp_path: Path) -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        words = ["doctor", "--nodes", "2", "--listen", f"127.0.0.1:0,{taken}", "--json", "--data-dir", str(tmp_path)]
        done = run_forked(words, stdin=b"", environment=os.environ)
    found = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 1
    assert found["listener 127.0.0.1:0"]["level"] == "ok"
    assert found[f"listener {taken}"]["level"] == "fail"


def test_ports_count_up_or_are_given_one_by_one(start: Start) -> None:
    with closing(socket.socket()) as one, closing(socket.socket()) as two:
        for probe in (one, two):
            probe.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1], two.getsockname()[1]]
    listed = ",".join(f"127.0.0.1:{port}" for port in ports)
    cluster = start("--nodes", "2", "--listen", listed)
    assert [node["port"] for node in cluster.ready["nodes"]] == ports
    assert cluster.stop() == 0


def test_one_page_shows_the_metrics_of_all_nodes(start: Start) -> None:
    cluster = start("--nodes", "2", "--http", "127.0.0.1:0")
    page = cluster.ready["http"]
    with urllib.request.urlopen(f"{page}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    assert 'ottla_node_up{node="1"} 1' in lines
    assert 'ottla_node_up{node="2"} 1' in lines
    assert sum(line.startswith("process_resident_memory_bytes{node=") for line in lines) == 2
    assert lines.count("# TYPE process_resident_memory_bytes gauge") == 1
    with urllib.request.urlopen(f"{page}/readyz") as answer:
        assert json.load(answer) == {"ready": True, "reasons": []}
    os.kill(cluster.pid_of(2), signal.SIGSTOP)
    os.kill(cluster.pid_of(2), signal.SIGKILL)
    cluster.wait_for("node 2 serves again")
    with urllib.request.urlopen(page) as answer:
        assert answer.read().decode().count("<tr>") == 3
    request = urllib.request.Request(f"{page}/metrics", headers={"host": "rebound.example.org"})
    with pytest.raises(urllib.error.HTTPError, match="421"):
        urllib.request.urlopen(request)
    assert cluster.stop() == 0


def test_what_cannot_be_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    text = refusal(tmp_path, "--nodes", "3", "--port", "65534")
    assert text == "PLAINTEXT://127.0.0.1:65534 leaves no room for the ports of all nodes: choose a lower port"
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        text = refusal(tmp_path, "--nodes", "2", "--listen", f"127.0.0.1:0,127.0.0.1:{port}")
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in text
    assert not (tmp_path / "data").exists()


def test_a_node_that_cannot_start_ends_the_start_of_all(start: Start, tmp_path: Path) -> None:
    cluster = start("--nodes", "2")
    text = refusal(tmp_path, "--port", "0", "--nodes", "2")
    assert f"node-1 is in use by process {cluster.pid_of(1)} (" in text or "node-2 is in use" in text
    assert brokers(cluster) == [1, 2]
    assert cluster.stop() == 0
    of_seven = Cluster(tmp_path / "other", "--nodes", "1", "--set", "node.id=7")
    assert of_seven.stop() == 0
    (cluster.data_dir / "node-2").rename(tmp_path / "aside")
    (tmp_path / "other" / "node-7").rename(cluster.data_dir / "node-2")
    text = refusal(tmp_path, "--port", "0", "--nodes", "2")
    assert text == f"node 2: {cluster.data_dir / 'node-2'} belongs to node 7, not 2"
    assert is_clean(cluster.data_dir, 1)


def test_a_folder_of_another_cluster_is_refused_untouched(start: Start, tmp_path: Path) -> None:
    cluster = start("--nodes", "2")
    assert cluster.stop() == 0
    other = Cluster(tmp_path / "other", "--nodes", "2")
    assert other.stop() == 0
    ours, theirs = cluster.data_dir / "node-2", tmp_path / "other" / "node-2"
    ours.rename(tmp_path / "aside")
    theirs.rename(ours)
    cluster_id = json.loads((ours / "node.json").read_text())["cluster_id"]
    text = refusal(tmp_path, "--port", "0", "--nodes", "2")
    assert text.startswith(f"node 2: {ours} belongs to the cluster {cluster_id}, and the metadata is that of ")
    assert is_clean(cluster.data_dir, 2)
    assert json.loads((ours / "node.json").read_text())["cluster_id"] == cluster_id


def test_without_its_metadata_a_folder_is_not_taken_for_a_new_cluster(start: Start, tmp_path: Path) -> None:
    single = start()
    single.run("topic", "create", "t")
    assert single.stop() == 0
    for path in single.data_dir.glob("cluster.sqlite*"):
        path.rename(tmp_path / path.name)
    assert "and the metadata is that of a new one" in refusal(tmp_path, "--port", "0")
    for path in single.data_dir.glob("cluster.sqlite*"):
        path.unlink()
    for path in tmp_path.glob("cluster.sqlite*"):
        path.rename(single.data_dir / path.name)
    again = start()
    assert b"t " in again.run("topic", "list")
    assert again.stop() == 0
