"""Where schemas are looked up: a registry with a login, and a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.spark import registry
from compat_tests.spark.registry import SchemaRegistry
from ottla.client.schema_registry import MAX_ANSWER_BYTES, RegistryLogin
from ottla.pipeline.values.registry import RegistryError, open_schemas, schema_of_file
from ottla.pipeline.values.schemas import SchemaText

NOBODY = RegistryLogin()
RECORD = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with registry.running() as running:
        yield running


@pytest.mark.parametrize(
    ("authorization", "login"),
    [
        ("Basic YWRhOmxvdmU6bGFjZQ==", RegistryLogin(user_info="ada:love:lace")),
        ("Bearer t0ken", RegistryLogin(token="t0ken")),
    ],
    ids=["basic", "bearer"],
)
def test_a_registry_that_asks_who_is_there(server: SchemaRegistry, authorization: str, login: RegistryLogin) -> None:
    server.authorization = authorization
    number = server.register("orders-value", RECORD)
    found = open_schemas(server.url, login).schema(number)
    assert found == SchemaText("AVRO", json.dumps(RECORD), {})
    with pytest.raises(RegistryError, match=r"answers 401 to /schemas/ids/1 \(who are you\?\): check its login"):
        open_schemas(server.url, NOBODY).schema(number)


def test_references_come_before_those_that_refer_to_them(server: SchemaRegistry) -> None:
    server.register("c", "C", "PROTOBUF")
    server.register("b", "B", "PROTOBUF", [("c.proto", "c", 1)])
    server.register("b", "B2", "PROTOBUF", [("c.proto", "c", 1)])
    server.register("a/value", "A", "PROTOBUF", [("b.proto", "b", 2), ("c.proto", "c", 1)])
    schemas = open_schemas(server.url, NOBODY)
    found = schemas.schema(4)
    assert found == SchemaText("PROTOBUF", "A", {"c.proto": "C", "b.proto": "B2"})
    assert list(found.references) == ["c.proto", "b.proto"]
    assert schemas.latest("b") == SchemaText("PROTOBUF", "B2", {"c.proto": "C"})
    assert schemas.schema(99) is None
    with pytest.raises(RegistryError, match="has no subject 'd': register the topic's schema there"):
        schemas.latest("d")


def test_references_that_lead_astray(server: SchemaRegistry) -> None:
    server.register("circle", "A", "PROTOBUF", [("a.proto", "circle", 1)])
    server.register("nowhere", "B", "PROTOBUF", [("x.proto", "none", 1)])
    for number in range(1, 150):
        server.register(f"s{number}", "S", "PROTOBUF", [(f"s{number + 1}.proto", f"s{number + 1}", 1)])
    schemas = open_schemas(server.url, NOBODY)
    found = schemas.schema(1)
    assert found is not None
    assert dict(found.references) == {"a.proto": "A"}
    with pytest.raises(RegistryError, match="refers to version 1 of 'none', which is not there"):
        schemas.schema(2)
    with pytest.raises(RegistryError, match="refers to more than 100 others"):
        schemas.schema(3)


def test_answers_that_are_none(server: SchemaRegistry) -> None:
    server.register("huge", "x" * MAX_ANSWER_BYTES, "JSON")
    server.register("null", "x", "JSON")
    server._answers[2] = {"id": 2}
    schemas = open_schemas(server.url, NOBODY)
    with pytest.raises(RegistryError, match=r"answers more than 4,194,304 B"):
        schemas.schema(1)
    with pytest.raises(RegistryError, match="answers no schema for schema 2"):
        schemas.schema(2)


def test_certificates_that_cannot_be_read() -> None:
    with pytest.raises(RegistryError, match=r"The certificates for the schema registry .* cannot be used"):
        open_schemas("https://127.0.0.1:1", RegistryLogin(ca_file="/never/there.pem"))


def test_a_folder_of_schemas(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text('{"type": "shop.Order"}')
    (tmp_path / "8.proto").write_text('import "order.proto";')
    (tmp_path / "order.proto").write_text('import "address.proto";')
    (tmp_path / "address.proto").write_text("message Address {}")
    (tmp_path / "unused.proto").write_text("message Unused {}")
    (tmp_path / "shop.Order.avsc").write_text("{}")
    (tmp_path / "orders-value.json").write_text("{}")
    schemas = open_schemas(str(tmp_path), NOBODY)
    assert schemas.schema(7) == SchemaText("AVRO", '{"type": "shop.Order"}', {"shop.Order": "{}"})
    proto = schemas.schema(8)
    assert proto is not None
    assert list(proto.references) == ["address.proto", "order.proto"]
    assert schemas.schema(9) is None
    assert schemas.latest("orders-value") == SchemaText("JSON", "{}", {})
    for subject in ("other-value", "../7"):
        with pytest.raises(RegistryError, match=r"contains none of .*\.avsc, .*\.proto, .*\.json"):
            schemas.latest(subject)
    with pytest.raises(RegistryError, match="neither an http:// or https:// address nor a folder"):
        open_schemas(str(tmp_path / "none"), NOBODY)


def test_schema_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.avsc").write_bytes(b"\xff")
    (tmp_path / "huge.avsc").write_bytes(b" " * (MAX_ANSWER_BYTES + 1))
    for name, sentence in (("latin", "is not UTF-8"), ("huge", "is longer than"), ("none", "cannot be read: No such")):
        with pytest.raises(RegistryError, match=sentence):
            schema_of_file(tmp_path / f"{name}.avsc", "AVRO")
