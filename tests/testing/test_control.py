"""`ottla test-broker`: a broker that tests in any language reset and break over HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from ottla.client.client import Client
from ottla.testing import Broker, Record, topics
from ottla.testing.control import Control


@contextmanager
def running(*words: str, **options: Any) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [sys.executable, "-m", "ottla.cli", "test-broker", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **options) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


def ask(url: str, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_a_suite_in_another_language_starts_resets_and_ends_it() -> None:
    with running("--set", "num.partitions=3") as (process, ready):
        control = ready["control"]
        assert ask(control, "POST", "/topics", {"name": "orders", "partitions": 2})[0] == 200
        with Client([(ready["host"], ready["port"])]) as client:
            topics.produce(client, [Record("orders", -1, -1, 5, None, b"x")], None)
        status, about = ask(control, "GET", "/")
        assert (status, about["topics"]) == (200, {"orders": 2})
        assert about["bootstrap"] == f"{ready['host']}:{ready['port']}"
        assert ask(control, "POST", "/reset")[0] == 200
        assert ask(control, "GET", "/")[1]["topics"] == {}
        assert ask(control, "DELETE", "/")[0] == 200
        assert process.wait(120) == 0


def test_it_ends_with_its_parent() -> None:
    with running("--with-parent") as (process, _):
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(120) == 0


def test_it_ends_by_a_signal() -> None:
    with running() as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


@pytest.fixture
def control() -> Iterator[Control]:
    with Broker() as broker, Control(broker) as control:
        yield control


def test_faults_and_the_clock(control: Control) -> None:
    control.do("POST", "/topics", {"name": "t", "configs": {"retention.ms": 1000}})
    fault = {"fault": "fail", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "topic": "t"}
    assert control.do("POST", "/faults", fault) == {}
    (rule,) = control._broker.faults._plan._faults
    assert (rule.topic, rule.times) == ("t", 1)
    control.do("DELETE", "/faults", {})
    assert not control._broker.faults._plan._faults
    control._broker.produce("t", "old")
    control.do("POST", "/clock", {"seconds": 60})
    assert control._broker.records("t") == []


def test_stop_and_start_keep_the_port(control: Control) -> None:
    before = control.do("GET", "/", {})
    assert before is not None
    control.do("POST", "/stop", {})
    assert control.do("GET", "/", {}) == {"running": False}
    control.do("POST", "/start", {})
    assert control.do("GET", "/", {}) == before


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "says"),
    [
        ("/topics", {"name": "a/b"}, {}, 400, "ASCII"),
        ("/topics", {"title": "t"}, {}, 400, "title"),
        ("/topics", ["t"], {}, 400, "not a JSON object"),
        ("/faults", {"fault": "explode"}, {}, 400, "is not a fault"),
        ("/faults", {"fault": "fail", "api": "Produce", "error": "NO_SUCH"}, {}, 400, "NO_SUCH"),
        ("/reset", {}, {"content-type": "text/plain"}, 400, "application/json"),
        ("/nothing", None, {}, 404, "there is no POST /nothing"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    path: str, body: object, headers: dict[str, str], status: int, says: str
) -> None:
    with running() as (_, ready):
        answered, told = ask(ready["control"], "POST", path, body, **headers)
    assert answered == status
    assert says in told["error"]


def test_a_suite_in_another_language_gets_a_schema_registry(control: Control) -> None:
    url = control.do("GET", "/schema-registry", {})["url"]  # type: ignore[index]
    schema = {"schema": '"string"'}
    assert ask(url, "POST", "/subjects/orders-value/versions", schema)[1]["id"] == 1
    assert control.do("GET", "/schema-registry", {}) == {"url": url}
    assert control.do("POST", "/reset", {}) == {}
    assert ask(url, "GET", "/subjects/orders-value/versions")[1]["error_code"] == 40401
