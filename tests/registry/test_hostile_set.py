"""What is meant to do harm, one test for each: Confluent's error code, a sentence, and the registry goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from ottla.registry.formats import AVRO, JSON, PROTOBUF
from ottla.registry.limits import MAX_REFERENCES
from ottla.testing.broker import Broker
from tests.registry.conftest import Client, running

pytest.importorskip("grpc_tools")
pytest.importorskip("jsonschema_rs")

TOPIC = "_schemas"


@pytest.fixture(autouse=True)
async def goes_on(client: Client) -> AsyncIterator[None]:
    """Whatever was sent, the next request is answered as if nothing had been."""
    yield
    assert await client.register("after", '"int"') > 0


async def refused(client: Client, code: int, sentence: str, schema: object, kind: str = AVRO, **more: object) -> None:
    await client.register("known", '"int"')
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = {"schema": text, "schemaType": kind, **more}
    for path in ("/subjects/s/versions", "/subjects/known", "/compatibility/subjects/known/versions/latest"):
        status, answer = await client.ask("POST", path, body)
        assert (status, answer["error_code"]) == (code // 100, code), (path, answer)
        assert sentence in answer["message"], (path, answer)
        assert len(answer["message"]) < 2_000


def nested(inner: Any, levels: int, around: Any) -> Any:
    for _ in range(levels):
        inner = around(inner)
    return inner


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (AVRO, nested("int", 150, lambda it: {"type": "array", "items": it})),
        (AVRO, "[" * 200_000),
        (JSON, nested({}, 150, lambda it: {"properties": {"a": it}})),
        (JSON, '{"not":' * 100_000),
        (PROTOBUF, 'syntax = "proto3"; ' + "message A {" * 150 + "}" * 150),
        (PROTOBUF, "message A {" * 50_000),
    ],
    ids=["avro", "avro, open", "json", "json, open", "protobuf", "protobuf, open"],
)
async def test_deep_nesting(client: Client, kind: str, schema: Any) -> None:
    await refused(client, 42201, "more than 100 objects", schema, kind)


@pytest.mark.parametrize(
    ("kind", "one", "two"),
    [
        (
            AVRO,
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "r", "type": ["null", {"type": "map", "values": "R"}]}],
            },
        ),
        (JSON, {"type": "object", "properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"items": {"$ref": "#"}}}}),
        (
            PROTOBUF,
            'syntax = "proto3"; message A { A a = 1; B b = 2; } message B { A a = 1; }',
            'syntax = "proto3"; message A { B a = 1; repeated A b = 2; } message B { B a = 1; }',
        ),
    ],
    ids=["avro", "json", "protobuf"],
)
async def test_types_within_themselves_are_compared_to_an_end(client: Client, kind: str, one: Any, two: Any) -> None:
    texts = [it if isinstance(it, str) else json.dumps(it) for it in (one, two)]
    await client.register("s", texts[0], schemaType=kind)
    body = {"schema": texts[1], "schemaType": kind}
    status, answer = await client.ask("POST", "/compatibility/subjects/s/versions/latest?verbose=true", body)
    assert status == 200
    assert answer["is_compatible"] is (not answer.get("messages"))


async def test_json_schemas_whose_references_lead_in_a_circle(client: Client) -> None:
    circle = {"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}}
    body = {"schema": json.dumps(circle | {"$ref": "#/definitions/a"}), "schemaType": JSON}
    statuses = [(await client.ask("POST", "/subjects/s/versions", body))[0] for _ in range(2)]
    assert statuses in ([200, 200], [422, 422])
    status, _ = await client.ask("POST", "/compatibility/subjects/s/versions/latest", body)
    assert status in (200, 404, 422)


async def test_a_schema_cannot_refer_to_itself(client: Client) -> None:
    itself = [{"name": "R", "subject": "s", "version": 1}]
    await refused(client, 42201, 'No schema reference found for subject "s"', '"R"', references=itself)


async def test_a_chain_of_references_has_an_end(client: Client) -> None:
    def record(number: int) -> dict[str, object]:
        before = [] if number == 0 else [{"name": "before", "type": ["null", f"R{number - 1}"]}]
        references = [{"name": f"R{number - 1}", "subject": f"r{number - 1}", "version": 1}] if number else []
        return {
            "schema": json.dumps({"type": "record", "name": f"R{number}", "fields": before}),
            "references": references,
        }

    for number in range(MAX_REFERENCES + 3):
        status, answer = await client.ask("POST", f"/subjects/r{number}/versions", record(number))
        if status != 200:
            break
    assert (status, answer["error_code"], number) == (422, 42201, MAX_REFERENCES + 1)
    assert f"refers to more than {MAX_REFERENCES} others" in answer["message"]


async def test_imports_in_a_circle_that_another_registry_let_in(broker: Broker) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        key = {"keytype": "SCHEMA", "subject": name, "version": 1, "magic": 1}
        value = {
            "subject": name,
            "version": 1,
            "id": ord(name),
            "schemaType": PROTOBUF,
            "references": [{"name": f"{other}.proto", "subject": other, "version": 1}],
            "schema": f'syntax = "proto3"; import "{other}.proto"; message {name.upper()} {{}}',
            "deleted": False,
        }
        broker.produce(TOPIC, json.dumps(value), key=json.dumps(key))
    async with running(broker) as registry:
        client = Client(registry)
        assert await client.ask("GET", "/subjects") == (200, ["a", "b"])
        body = {
            "schema": 'syntax = "proto3"; import "a.proto"; message C { A a = 1; }',
            "schemaType": PROTOBUF,
            "references": [{"name": "a.proto", "subject": "a", "version": 1}],
        }
        status, answer = await client.ask("POST", "/subjects/c/versions", body)
        assert (status, answer["error_code"]) == (422, 42201)
        assert "recursively imports itself" in answer["message"]


@pytest.mark.parametrize("kind", [AVRO, JSON, PROTOBUF])
async def test_schemas_of_ten_megabytes(client: Client, kind: str) -> None:
    filling = "x" * 10_000_000
    text = f"// {filling}" if kind == PROTOBUF else json.dumps({"type": "string", "doc": filling})
    await refused(client, 42209, "is too large", text, kind)
    # One that the request's limit lets in, and a record would not hold.
    text = (
        text[:3] + "y" * 1_200_000 + '"}'
        if kind == PROTOBUF
        else json.dumps({"type": "string", "doc": "x" * 1_200_000})
    )
    await refused(client, 42209, "may have 1000000 bytes", text, kind)


async def test_unions_of_thousands(client: Client) -> None:
    def union(first: int, count: int) -> str:
        return json.dumps(
            [{"type": "fixed", "name": f"F{number}", "size": 1} for number in range(first, first + count)]
        )

    await client.register("s", union(0, 5_000))
    same = {"schema": union(0, 5_001)}
    assert await client.ask("POST", "/compatibility/subjects/s/versions/latest", same) == (200, {"is_compatible": True})
    status, answer = await client.ask(
        "POST", "/compatibility/subjects/s/versions/latest", {"schema": union(9_000, 5_000)}
    )
    assert (status, answer.get("is_compatible"), answer.get("error_code")) in ((200, False, None), (422, None, 42201))


@pytest.mark.parametrize(
    "name",
    ["a/b", "a:b", "a/../b", "..", "a%2Fb", "a b\tc", "ключ", "'; --", "a?b=c#d", ":.c:a/b:c", ":.c:"],
)
async def test_names_with_colons_and_slashes(client: Client, name: str) -> None:
    path = f"/subjects/{quote(name, safe='')}"
    status, answer = await client.ask("POST", f"{path}/versions", {"schema": '"long"'})
    if status != 200:
        assert (status, answer["error_code"]) == (422, 42208)
        return
    assert await client.ask("GET", f"{path}/versions") == (200, [1])
    assert (await client.ask("GET", "/subjects"))[1] == [name]
    assert await client.ask("DELETE", path) == (200, [1])


@pytest.mark.parametrize("name", ["x" * 1_001, "a\x00b", "\x1b[31m"])
async def test_names_that_cannot_be_subjects(client: Client, name: str) -> None:
    status, answer = await client.ask("POST", f"/subjects/{quote(name, safe='')}/versions", {"schema": '"long"'})
    assert (status, answer["error_code"]) == (422, 42208), answer
    assert "cannot be the name of a subject" in answer["message"]
