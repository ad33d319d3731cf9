"""Confluent's clients of a schema registry for Java, Go and Node.js, and Rust's, against that of the broker for tests.

Each registers, writes a value and reads it back, reads what an older schema wrote, and is refused what breaks readers.
Confluent's client for Java is the one in the jar of Apache Flink's format avro-confluent.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from compat_tests.java import ROOT, java_program
from ottla.testing.broker import Broker

HERE: Final = Path(__file__).resolve().parent
FLINK: Final = ROOT / "flink"
GO: Final = HERE / "go/build/registry"
NODE: Final = HERE / "node/node_modules/.complete"
RUST: Final = HERE / "rust/target/debug/registry"
BUILT: Final = "it takes {} and `make registry-clients`"


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def url(shared_broker: Broker) -> str:
    shared_broker.reset()
    return shared_broker.schema_registry_url


def results(*command: str) -> dict[str, Any]:
    """What came of each call, in their order."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line["result"] for line in lines}


@pytest.mark.java
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
@pytest.mark.skipif(not (FLINK / ".complete").exists(), reason="it takes Maven and `make jars`")
def test_java(url: str) -> None:
    assert results(*java_program(HERE / "flink/Registry.java", url, jars=FLINK)) == {
        "first": ["00000000010e", '{"id": 7}'],
        "evolved": ['{"id": 7, "note": "none"}', '{"id": 8}'],
        "incompatible": 409,
        "versions": [1, 2],
        "known id": 1,
        "again": 2,
        "by id": '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}',
        "latest": 2,
        "check": False,
        "why": True,
        "reference": 3,
        "read with its reference": "java-value",
        "referred to": 42206,
        "level": "FULL FULL",
        "mode": "READONLY READONLY",
        "read only": 42205,
        "of an id": "java-value",
        "subjects": ["java-outer", "java-value"],
        "missing": 40401,
        "deleted": [1],
    }


@pytest.mark.skipif(not GO.is_file(), reason=BUILT.format("Go"))
def test_go(url: str) -> None:
    assert results(str(GO), url) == {
        "avro": "00000000010e",
        "read": {"id": 7},
        "evolve": 2,
        "read by the newest": {"ID": 7, "Note": "none"},
        "incompatible": 409,
        "check": False,
        "json": '{"id":8}',
        "read json": {"id": 8},
        "reference": None,
        "its reference": [{"name": "order", "subject": "go-value", "version": 2}],
        "by guid": True,
        "versions": [1, 2],
        "level": "FULL",
        "missing": 40401,
        "delete": [1],
    }


@pytest.mark.skipif(not NODE.is_file(), reason=BUILT.format("Node.js"))
def test_node(url: str) -> None:
    assert results("node", str(HERE / "node/registry.js"), url) == {
        "register": 1,
        "avro": ["00000000010e", {"id": 7}],
        "evolve": 2,
        "read by the newest": {"id": 7, "note": 0},
        "incompatible": 409,
        "check": False,
        "json": ["0000000003", {"id": 7}],
        "protobuf": ["000a016e", "n"],
        "by guid": True,
        "versions": [1, 2],
        "level": ["FULL", "FULL"],
        "missing": 40401,
        "subjects": ["avro-value", "json-value", "protobuf-value"],
        "delete": [1],
    }


@pytest.mark.skipif(not RUST.is_file(), reason=BUILT.format("Rust"))
def test_rust(url: str) -> None:
    found = results(str(RUST), url)
    assert json.loads(found.pop("by guid"))["fields"][1]["default"] == "none"
    assert found == {
        "avro": ["00000000010e", {"id": 7}, "00000000020e08736f6f6e", {"id": 7, "note": "soon"}],
        "json": ["0000000003", {"id": 7}],
        # The second message of its file: that takes an index, which Confluent's serializers write before the value.
        "protobuf": ["000000000402020807", ["shop.Order", [8, 7]]],
        "incompatible": "409",
        "check": False,
        "again": 1,
        "latest": [2, 2],
        "reference": [5, [["Order", "rust-value", 2]]],
        "versions": [1, 2],
        "missing": "404",
        "subjects": ["rust-json-value", "rust-outer", "rust-protobuf-value", "rust-value"],
    }
