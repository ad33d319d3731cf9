"""`ottla produce` and `ottla consume` with schemas, by the broker's own registry and by files."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from tests.cli.conftest import OTTLA

pytest.importorskip("fastavro")
pytest.importorskip("jsonschema_rs")
pytest.importorskip("grpc_tools")

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "Address"}],
}
ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": ["null", "string"]}]}
PROTO = 'syntax = "proto3"; message A { string x = 1; } message B { int32 n = 1; }'


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def broker(tmp_path: Path, broker_class: Any) -> Iterator[Any]:
    """With a registry, which commands find by themselves: so its port has to be said before."""
    running = broker_class(tmp_path / "data", "--registry", f"127.0.0.1:{free_port()}")
    yield running
    assert running.stop() == 0


def register(broker: Any, subject: str, schema: object, kind: str = "AVRO", **more: object) -> int:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = json.dumps({"schema": text, "schemaType": kind, **more}).encode()
    url = f"{broker.ready['registry']}/subjects/{subject}/versions"
    request = Request(url, data=body, headers={"Content-Type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=60) as response:
        return int(json.load(response)["id"])


def test_avro_by_the_subject_with_a_reference(broker: Any) -> None:
    register(broker, "Address", ADDRESS)
    number = register(broker, "t-value", ORDER, references=[{"name": "Address", "subject": "Address", "version": 1}])
    line = b'{"id": 1, "to": {"city": {"string": "Praha"}}}\n'
    broker.run("produce", "t", "--value-format", "avro", stdin=line + b'{"id": 2, "to": {"city": null}}\n')
    raw = broker.run("consume", "t", "-c", "1").stdout
    assert raw == b"\0" + number.to_bytes(4, "big") + b"\x02\x02\x0aPraha\n"
    out = broker.run("consume", "t", "--value-format", "avro", "-f", r"%S %s\n").stdout.splitlines()
    assert [json.loads(it.partition(b" ")[2]) for it in out] == [
        {"id": 1, "to": {"city": {"string": "Praha"}}},
        {"id": 2, "to": {"city": None}},
    ]
    # What was decoded can be searched, and sent again.
    found = broker.run("consume", "t", "--value-format", "avro", "--where", "$.id == 2").stdout
    broker.run("produce", "t", "--value-format", "avro", stdin=found)
    assert broker.run("consume", "t", "-o", "-1").stdout == b"\0" + number.to_bytes(4, "big") + b"\x04\x00\n"


def test_protobuf_and_json_schema_by_files_that_are_registered(broker: Any, tmp_path: Path) -> None:
    (tmp_path / "o.proto").write_text(PROTO)
    (tmp_path / "k.json").write_text('{"type": "object", "required": ["k"]}')
    words = ["--value-format", "protobuf", "--key-format", "json-schema"]
    files = ["--value-schema", f"{tmp_path}/o.proto", "--key-schema", f"{tmp_path}/k.json", "--value-message", "B"]
    broker.run("produce", "t", *words, *files, "-K", "|", stdin=b'{"k":1}|{"n": 5}\n')
    assert broker.run("consume", "t", *words, "-K", "|").stdout == b'{"k":1}|{"n": 5}\n'
    refused = broker.run("produce", "t", *words, *files, "-K", "|", stdin=b'{"k":2}|{"n": 6}\n{}|{}\n', check=False)
    assert refused.returncode == 1
    assert b"record 2: the key '{}': $: \"k\" is a required property" in refused.stderr
    # What came before it was sent.
    assert broker.run("consume", "t", *words, "-K", "|", "-o", "-1").stdout == b'{"k":2}|{"n": 6}\n'


def test_values_without_ids(broker: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.avsc"
    file.write_text(json.dumps(ADDRESS))
    words = ["--value-format", "avro", "--value-schema", str(file)]
    broker.run("produce", "t", *words, "--no-schema-id", stdin=b'{"city": null}\n')
    assert broker.run("consume", "t").stdout == b"\0\n"
    assert broker.run("consume", "t", *words).stdout == b'{"city": null}\n'


def test_what_cannot_be_decoded_ends_it_or_is_skipped(broker: Any) -> None:
    register(broker, "t-value", ADDRESS)
    broker.run("produce", "t", "--value-format", "avro", stdin=b'{"city": null}\n')
    broker.run("produce", "t", stdin=b"plain\n")
    broker.run("produce", "t", "--value-format", "avro", "--value-schema", "1", stdin=b'{"city": null}\n')
    ended = broker.run("consume", "t", "--value-format", "avro", check=False)
    assert (ended.returncode, ended.stdout) == (1, b'{"city": null}\n')
    assert b"t-0 at 1: the value does not begin with the id of a schema" in ended.stderr
    skipped = broker.run("consume", "t", "--value-format", "avro", "--skip-undecodable")
    assert skipped.stdout == b'{"city": null}\n' * 2
    assert b"t-0 at 1: " in skipped.stderr
    other = broker.run("consume", "t", "--value-format", "protobuf", check=False)
    assert b"the schema is of type AVRO, not protobuf" in other.stderr


def test_a_subject_or_a_registry_that_is_not_there(broker: Any) -> None:
    none = broker.run("produce", "t", "--value-format", "avro", stdin=b"{}\n", check=False)
    assert b"has no subject 't-value'" in none.stderr
    down = broker.run("produce", "t", "--value-format", "avro", "--registry", "http://127.0.0.1:1", check=False)
    assert b"does not answer" in down.stderr


def test_a_broker_without_a_registry(tmp_path: Path, broker_class: Any) -> None:
    running = broker_class(tmp_path / "without")
    done = running.run("produce", "t", "--value-format", "avro", check=False)
    assert b"the broker has no schema registry: start it with --registry, or name one with --registry" in done.stderr
    assert running.stop() == 0


def test_the_proxy_validates_by_the_registry_behind_it(broker: Any, tmp_path: Path) -> None:
    register(broker, "t-value", ADDRESS)
    config = tmp_path / "proxy.toml"
    config.write_text('[[filter]]\ntype = "validation"\ntopics = "t"\nregistry = "upstream"\n')
    broker.run("topic", "create", "t")
    command = [*OTTLA, "proxy", "--listen", "127.0.0.1:0", "--upstream", broker.address, "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        try:
            ready = json.loads(proxy.stdout.readline())
            where = ["-b", f"{ready['host']}:{ready['port']}"]
            broker.run("produce", "t", "--value-format", "avro", *where, stdin=b'{"city": null}\n')
            refused = broker.run("produce", "t", *where, stdin=b"plain\n", check=False)
            assert b"it does not begin with the id of a schema" in refused.stderr
        finally:
            proxy.send_signal(signal.SIGTERM)
            proxy.communicate(timeout=120)
    assert broker.run("consume", "t", "--value-format", "avro").stdout == b'{"city": null}\n'
    command[command.index("--upstream") + 1] = "127.0.0.1:1"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert 'registry = "upstream": ' in done.stderr
