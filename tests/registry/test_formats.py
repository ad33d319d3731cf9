"""Texts of the three types: what is refused, what is kept, and what is equal."""

from __future__ import annotations

import base64
import json
import socket
from typing import Any

import pytest

from ottla.registry import formats
from ottla.registry.errors import RegistryError
from ottla.registry.formats import AVRO, JSON, KINDS, PROTOBUF
from tests.registry.conftest import Client

PROTO = (
    'syntax = "proto3"; package shop; message Order { int32 id = 1; map<string, int64> n = 2; optional bool b = 3; }'
)


def parse(kind: str, text: object, **references: str) -> Any:
    return formats.parse(kind, text if isinstance(text, str) else json.dumps(text), references)


# What Java's Schema.toString() writes of these.
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ('{"type": "string"}', '"string"'),
        ('{"type":"long","logicalType":"timestamp-millis"}', '{"type":"long","logicalType":"timestamp-millis"}'),
        ('["null", {"type":"int"}]', '["null","int"]'),
        ('{"items":"int","type":"array","x":1}', '{"type":"array","items":"int","x":1}'),
        (
            '{"namespace":"a.b","fields":[{"type":"X","name":"f","default":1.0,"doc":"d","order":"ascending","p":{}}],'
            '"aliases":["Y","c.Z"],"name":"X","type":"record","doc":"ä"}'.replace(
                '"X","name":"f"', '"double","name":"f"'
            ),
            '{"type":"record","name":"X","namespace":"a.b","doc":"ä","fields":[{"name":"f","type":"double","doc":"d",'
            '"default":1.0,"p":{}}],"aliases":["Y","c.Z"]}',
        ),
        (
            '{"type":"record","name":"a.X","fields":[{"name":"f","type":["null","X"]},{"name":"g","type":{"type":"enum",'
            '"name":"E","symbols":["A"],"default":"A"}},{"name":"h","type":"a.E"}]}',
            '{"type":"record","name":"X","namespace":"a","fields":[{"name":"f","type":["null","X"]},{"name":"g","type":'
            '{"type":"enum","name":"E","symbols":["A"],"default":"A"}},{"name":"h","type":"E"}]}',
        ),
    ],
)
def test_avro_is_kept_as_java_writes_it(given: str, kept: str) -> None:
    parsed = parse(AVRO, given)
    assert parsed.canonical == kept
    assert parse(AVRO, kept).canonical == kept
    assert parse(AVRO, parsed.normalized()).normalized() == parsed.normalized()


def record(*fields: object, **more: object) -> dict[str, object]:
    return {"type": "record", "name": "R", "fields": list(fields)} | more


@pytest.mark.parametrize(
    "schema",
    [
        *("x", 1, None, {}, {"type": 1}, {"type": "Q"}, {"type": "array"}, {"type": "map"}, {"type": "fixed"}),
        *(["int", "int"], ["int", ["null"]], record(name="1x"), record(name="a..b"), record(fields=None)),
        *(record({"name": "a"}), record({"type": "int"}), record(1), record({"name": "a-b", "type": "int"})),
        record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}),
        record({"name": "a", "type": "int", "default": "x"}),
        record({"name": "a", "type": "int", "default": None}),
        record({"name": "a", "type": ["null", "int"], "default": "x"}),
        record({"name": "a", "type": "int", "order": "sideways"}),
        record({"name": "a", "type": record(name="R")}),
        {"type": "enum", "name": "E", "symbols": ["A", "A"]},
        {"type": "enum", "name": "E", "symbols": ["a-b"]},
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "B"},
        {"type": "fixed", "name": "F", "size": "x"},
        {"type": "fixed", "name": "F", "size": -1},
        record(name="int"),
    ],
)
def test_invalid_avro_is_refused(schema: object) -> None:
    with pytest.raises(RegistryError, match="Invalid schema of type AVRO, details: ") as raised:
        parse(AVRO, schema)
    assert raised.value.code == 42201


@pytest.mark.parametrize("schema", [1, None, "x", [], {"type": "foo"}, {"properties": 1}, {"required": "a"}])
def test_invalid_json_schemas_are_refused(schema: object) -> None:
    with pytest.raises(RegistryError, match="Invalid schema of type JSON, details: "):
        parse(JSON, schema)


def test_json_schemas_keep_their_order_and_are_normalised_by_name() -> None:
    one, other = '{"type": "object", "title": "A"}', '{"title":"A","type":"object"}'
    assert parse(JSON, one).canonical == '{"type":"object","title":"A"}'
    assert parse(JSON, one).normalized() == parse(JSON, other).normalized()


def test_no_schema_is_fetched_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def look_up(*address: object, **_: object) -> list[object]:
        asked.append(address)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        parse(JSON, {"$schema": f"{url}/schema", "$ref": f"{url}/other"})
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert asked == []


@pytest.mark.parametrize(
    "text",
    [
        "message A {",
        'syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }',
        'syntax = "proto3"; message A { Unknown a = 1; }',
        'syntax = "proto3"; import "missing.proto"; message A { }',
        'syntax = "proto3"; import "/etc/passwd"; message A { }',
        'syntax = "proto3"; import "../../../etc/passwd"; message A { }',
        'syntax = "proto3"; import "schema.proto"; message A { }',
    ],
)
def test_invalid_protobuf_is_refused(text: str) -> None:
    with pytest.raises(RegistryError, match="Invalid schema of type PROTOBUF, details: "):
        parse(PROTOBUF, text)


@pytest.mark.parametrize("name", ["/a.proto", "../a.proto", "schema.proto", ""])
def test_a_reference_stays_in_its_folder(name: str) -> None:
    with pytest.raises(RegistryError, match="is not a file name"):
        formats.parse(PROTOBUF, PROTO, {name: PROTO})


def test_protobuf_is_the_same_as_text_and_as_descriptor() -> None:
    parsed = parse(PROTOBUF, PROTO)
    assert parsed.canonical == PROTO
    sent = parsed.formatted("serialized")
    again = parse(PROTOBUF, sent)
    assert again.formatted("serialized") == sent
    assert again.canonical == parsed.normalized()
    assert "map<string, int64> n = 2;" in again.canonical
    assert "optional bool b = 3;" in again.canonical


def test_what_is_printed_of_a_descriptor_means_the_same() -> None:
    text = """syntax = "proto2"; package a.b; import public "google/protobuf/any.proto";
        option java_package = "x.y"; option optimize_for = SPEED;
        message M { option deprecated = true; required int32 r = 1 [default = -3];
          optional string s = 2 [default = "q\\"x"];
          repeated double d = 3 [packed = true]; oneof o { E e = 4; google.protobuf.Any any = 5; } optional bytes y = 6;
          enum E { option allow_alias = true; A = 0; B = 0; reserved 5, 7 to 9; reserved "Q"; }
          message N { optional N n = 1; extensions 100 to 200, 500 to max; } reserved 50 to 60, 70; reserved "gone";
          optional int32 odd_name = 8 [json_name = "Odd", deprecated = true]; optional float f = 9 [default = inf]; }
        extend M.N { optional string more = 150; }
        service S { rpc Do (M) returns (stream M.N) { option deprecated = true; } rpc Other (M) returns (M); }"""
    parsed = parse(PROTOBUF, text)
    assert parse(PROTOBUF, parsed.normalized()).formatted("serialized") == parsed.formatted("serialized")


async def test_protobuf_with_imports(client: Client) -> None:
    inner = 'syntax = "proto3"; package in; message Inner { string a = 1; }'
    outer = 'syntax = "proto3"; import "in/inner.proto"; message Outer { in.Inner i = 1; }'
    await client.register("inner", inner, schemaType=PROTOBUF)
    references = [{"name": "in/inner.proto", "subject": "inner", "version": 1}]
    await client.register("outer", outer, schemaType=PROTOBUF, references=references)
    answer = (await client.ask("GET", "/subjects/outer/versions/1"))[1]
    assert (answer["schema"], answer["schemaType"], answer["references"]) == (outer, PROTOBUF, references)
    respaced = {"schema": f"{outer}\n// said\n", "schemaType": PROTOBUF, "references": references}
    assert (await client.ask("POST", "/subjects/outer", respaced))[1]["version"] == 1
    assert await client.register("outer", respaced["schema"], schemaType=PROTOBUF, references=references) == 2
    serialized = (await client.ask("GET", "/schemas/ids/2?format=serialized"))[1]["schema"]
    assert b"in/inner.proto" in base64.b64decode(serialized)


async def test_json_schemas_with_references(client: Client) -> None:
    await client.register("inner", {"$id": "http://x/inner.json", "type": "string"}, schemaType=JSON)
    outer = {"type": "object", "properties": {"a": {"$ref": "inner.json"}}, "additionalProperties": False}
    references = [{"name": "inner.json", "subject": "inner", "version": 1}]
    await client.register("outer", outer, schemaType=JSON, references=references)
    broken = json.loads(json.dumps(outer).replace('{"$ref": "inner.json"}', '{"type": "integer"}'))
    status, answer = await client.ask(
        "POST", "/subjects/outer/versions", {"schema": json.dumps(broken), "schemaType": JSON}
    )
    assert status == 409
    assert "TYPE_CHANGED" in answer["message"]
    broken["properties"]["a"] = {"type": "string"}
    assert await client.register("outer", broken, schemaType=JSON) == 3


async def test_a_subject_keeps_its_type(client: Client) -> None:
    await client.register("s", '"string"')
    status, answer = await client.ask("POST", "/subjects/s/versions", {"schema": PROTO, "schemaType": PROTOBUF})
    assert status == 409
    assert "different schema type" in answer["message"]


DEEP = 5_000


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (AVRO, '{"type":"array","items":' * DEEP + '"int"' + "}" * DEEP),
        (AVRO, "[" * DEEP + "]" * DEEP),
        (JSON, '{"not":' * DEEP + "{}" + "}" * DEEP),
        (JSON, '{"allOf":[' * DEEP + "{}" + "]}" * DEEP),
        (PROTOBUF, 'syntax = "proto3";' + "message A {" * DEEP + "}" * DEEP),
        (PROTOBUF, 'syntax = "proto3"; option (x) = ' + "{a:" * DEEP + "1" + "}" * DEEP + ";"),
    ],
)
def test_what_is_nested_too_deeply_is_refused(kind: str, text: str) -> None:
    with pytest.raises(RegistryError) as raised:
        parse(kind, text)
    assert raised.value.code == 42201


@pytest.mark.parametrize("kind", KINDS)
async def test_ten_megabytes_are_refused(client: Client, kind: str) -> None:
    for size, code in ((10_000_000, 42209), (1_500_000, 42209)):
        body = {"schema": '"' + "x" * size + '"', "schemaType": kind}
        status, answer = await client.ask("POST", "/subjects/s/versions", body)
        assert (status, answer["error_code"]) == (422, code)


def union(count: int, size: int = 0) -> str:
    return json.dumps([{"type": "fixed", "name": f"F{number}", "size": size} for number in range(count)])


async def test_unions_of_thousands(client: Client) -> None:
    assert await client.register("avro", union(5_000)) == 1
    answer = await client.ask("POST", "/compatibility/subjects/avro/versions", {"schema": union(4_999)})
    assert answer == (200, {"is_compatible": False})
    answer = await client.ask("POST", "/compatibility/subjects/avro/versions", {"schema": union(5_000, 1)})
    assert answer[1].get("is_compatible") is not True
    one_of = {"oneOf": [{"type": "string", "maxLength": number} for number in range(3_000)]}
    await client.register("json", one_of, schemaType=JSON)
    one_of["oneOf"].append({"type": "integer"})
    assert await client.register("json", one_of, schemaType=JSON) == 3


async def test_cyclic_imports_and_references_in_the_topic_end(client: Client) -> None:
    state = client.registry.state
    for name, other in (("a", "b"), ("b", "a")):
        text = f'syntax = "proto3"; import "{other}.proto"; message {name.upper()} {{}}'
        value = {
            "subject": name,
            "version": 1,
            "id": ord(name),
            "schemaType": PROTOBUF,
            "schema": text,
            "deleted": False,
            "references": [{"name": f"{other}.proto", "subject": other, "version": 1}],
        }
        key = {"keytype": "SCHEMA", "subject": name, "version": 1, "magic": 1}
        state.apply(json.dumps(key).encode(), json.dumps(value).encode())
    status, answer = await client.ask("GET", "/subjects/a/versions/1?format=serialized")
    assert (status, answer["error_code"]) == (422, 42201)
    body = {"schema": 'syntax = "proto3"; message C {}', "schemaType": PROTOBUF}
    assert (await client.ask("POST", "/subjects/a", body))[1]["error_code"] == 40403


def test_a_recursive_schema_is_the_same_as_itself() -> None:
    tree = {"$defs": {"t": {"properties": {"l": {"$ref": "#/$defs/t"}}, "type": "object"}}, "$ref": "#/$defs/t"}
    circle = {"$ref": "#"}
    avro = record({"name": "l", "type": ["null", "R"]})
    proto = 'syntax = "proto3"; message T { T l = 1; U u = 2; } message U { T t = 1; }'
    for kind, schema in ((JSON, tree), (AVRO, avro), (PROTOBUF, proto)):
        assert formats.messages(kind, parse(kind, schema), parse(kind, schema), is_reader_new=True) == []
    with pytest.raises(RegistryError):
        formats.messages(JSON, parse(JSON, circle), parse(JSON, circle), is_reader_new=True)
