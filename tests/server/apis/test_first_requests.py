"""What an API needs is imported in a worker thread before its first request, so that it holds up nobody."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

from ottla.client.connection import BrokerConnection
from ottla.client.errors import ClientError
from ottla.kproto.messages.data.produce import ProduceRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.server.apis.table import served
from tests.rooms import BROKER
from tests.server.apis.generated import TOPIC, plain_request

_BROKER = """
import sys, threading

def watch(event, arguments):
    if event == "import" and threading.current_thread() is threading.main_thread():
        print("imported", arguments[0], file=sys.stderr, flush=True)

sys.addaudithook(watch)
from ottla.cli.__main__ import main
main()
"""


def test_no_request_imports_what_is_ours_on_the_event_loop(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", _BROKER, "serve", "--data-dir", str(tmp_path / "data")]
    command += ["--set", "listeners=PLAINTEXT://127.0.0.1:0"]
    with log.open("wb") as stderr:
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    with broker:
        try:
            assert broker.stdout is not None
            port = json.loads(broker.stdout.readline())["port"]
            before = log.stat().st_size
            _send_one_of_each(port)
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(120) == 0
        finally:
            broker.kill()
    imported = [line.split()[1] for line in log.read_text(encoding="utf-8")[before:].splitlines() if "imported" in line]
    # What the command line imports behind the line that says where it listens is another matter.
    ours = tuple(f"ottla.{room}." for room in (*BROKER, "storage", "kproto"))
    assert [name for name in imported if name.startswith(ours)] == []


def _send_one_of_each(port: int) -> None:
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    with closing(BrokerConnection("127.0.0.1", port, 30.0)) as connection:
        created = connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
        topic_id = created.topics[0].topic_id
    for key in served():
        version = key.valid_versions.highest
        request = plain_request(key, version, topic_id)
        if isinstance(request, ProduceRequest):
            request.acks = 1  # so that there is an answer
        with closing(BrokerConnection("127.0.0.1", port, 30.0)) as connection, suppress(ClientError):
            connection.call(request, at_most=version)
