"""Subjects, versions, ids and deletion over the HTTP interface, with Confluent's answers."""

from __future__ import annotations

import json
from uuid import UUID

from tests.registry.conftest import V1, Client

INT, LONG, TEXT = '"int"', '"long"', '"string"'


def record(*fields: str, name: str = "R", **defaults: object) -> str:
    listed = [{"name": it, "type": "int"} | ({"default": defaults[it]} if it in defaults else {}) for it in fields]
    return json.dumps({"type": "record", "name": name, "fields": listed})


async def test_a_registered_schema_is_found_by_version_and_by_id(client: Client) -> None:
    status, answer = await client.ask("POST", "/subjects/s/versions", {"schema": '{"type": "string"}'})
    assert (status, answer["id"], answer["version"], answer["schema"]) == (200, 1, 1, TEXT)
    UUID(answer["guid"])
    wanted = {"subject": "s", "version": 1, "id": 1, "guid": answer["guid"], "schemaType": "AVRO", "schema": TEXT}
    for version in ("1", "latest", "-1"):
        assert await client.ask("GET", f"/subjects/s/versions/{version}") == (200, wanted)
    assert await client.ask("POST", "/subjects/s", {"schema": TEXT}) == (200, wanted)
    assert (await client.ask("GET", "/schemas/ids/1"))[1]["schema"] == TEXT
    assert await client.ask("GET", "/schemas/ids/1/schema") == (200, "string")
    assert await client.ask("GET", "/schemas/ids/1/subjects") == (200, ["s"])
    assert await client.ask("GET", "/schemas/ids/1/versions") == (200, [{"subject": "s", "version": 1}])
    assert (await client.ask("GET", f"/schemas/guids/{answer['guid']}"))[1]["schema"] == TEXT
    assert await client.ask("GET", f"/schemas/guids/{answer['guid']}/ids") == (200, [{"context": ".", "id": 1}])


async def test_equal_schemas_have_one_id_and_others_the_next(client: Client) -> None:
    assert await client.register("a", INT) == 1
    assert await client.register("a", INT) == 1
    assert await client.register("b", {"type": "int"}) == 1
    assert await client.register("a", LONG) == 2
    assert await client.ask("GET", "/subjects/a/versions") == (200, [1, 2])
    assert await client.ask("GET", "/schemas/ids/1/subjects") == (200, ["a", "b"])


async def test_what_is_missing_has_confluents_codes(client: Client) -> None:
    await client.register("s", INT)
    for method, path, body, status, code, message in [
        ("GET", "/subjects/x/versions", None, 404, 40401, "Subject 'x' not found."),
        ("GET", "/subjects/x/versions/1", None, 404, 40401, "Subject 'x' not found."),
        ("GET", "/subjects/s/versions/2", None, 404, 40402, "Version 2 not found."),
        ("GET", "/schemas/ids/9", None, 404, 40403, "Schema 9 not found"),
        ("POST", "/subjects/s", {"schema": LONG}, 404, 40403, "Schema not found"),
        ("POST", "/subjects/x", {"schema": LONG}, 404, 40401, "Subject 'x' not found."),
        ("DELETE", "/subjects/x", None, 404, 40401, "Subject 'x' not found."),
        ("GET", "/config/s", None, 404, 40408, "Subject 's' has no compatibility level of its own"),
        ("GET", "/mode/s", None, 404, 40409, "Subject 's' has no mode of its own"),
        ("GET", "/nothing", None, 404, 404, "HTTP 404 Not Found"),
        ("PATCH", "/subjects", None, 405, 405, "HTTP 405 Method Not Allowed"),
        ("GET", "/schemas/ids/x", None, 404, 404, "HTTP 404 Not Found"),
    ]:
        assert await client.ask(method, path, body) == (status, {"error_code": code, "message": message}), path
    for version in ("0", "-2", "x", "99999999999"):
        status, answer = await client.ask("GET", f"/subjects/s/versions/{version}")
        assert (status, answer["error_code"]) == (422, 42202)
        assert answer["message"].startswith(f"'{version}' is not a version: ")


async def test_invalid_requests_are_refused(client: Client) -> None:
    for body, status, code in [
        ({"schema": "{"}, 422, 42201),
        ({"schema": ""}, 422, 42201),
        ({}, 422, 42201),
        ({"schema": INT, "schemaType": "THRIFT"}, 422, 42201),
        ({"schema": 1}, 422, 422),
        ([], 422, 422),
        ({"schema": INT, "references": [{"name": "x"}]}, 422, 422),
        ({"schema": INT, "references": [{"name": "x", "subject": "y", "version": 1}]}, 422, 42201),
    ]:
        found, answer = await client.ask("POST", "/subjects/s/versions", body)
        assert (found, answer["error_code"]) == (status, code), body
    assert (await client.ask("POST", "/subjects/s/versions", raw=b"{"))[0] == 400
    assert (await client.ask("POST", "/subjects/s/versions", raw=b"[" * 5_000))[0] == 400
    assert (await client.ask("POST", "/subjects/s/versions", {"schema": INT}, content_type="text/plain"))[0] == 415
    assert (await client.ask("GET", "/subjects", accept="text/html"))[0] == 406
    assert (await client.ask("POST", "/subjects/a%0Ab/versions", {"schema": INT}))[1]["error_code"] == 42208
    assert await client.ask("GET", "/subjects") == (200, [])


async def test_content_types(client: Client) -> None:
    for accept, wanted in [
        ("", V1),
        ("*/*", V1),
        ("application/json", "application/json"),
        (
            "application/vnd.schemaregistry+json; qs=0.9, application/json; qs=0.5",
            "application/vnd.schemaregistry+json",
        ),
    ]:
        _, _, headers = await client.whole("GET", "/subjects", accept=accept)
        assert headers["content-type"] == wanted
    assert (await client.ask("POST", "/subjects/s/versions", {"schema": INT}, content_type="application/json"))[
        0
    ] == 200


async def test_names_with_slashes_colons_and_spaces(client: Client) -> None:
    for encoded, name in [("a%2Fb", "a/b"), ("a%3Ab", "a:b"), ("%20x%20y", " x y"), ("%C3%A4", "ä"), ("%25", "%")]:
        await client.register(encoded, INT)
        assert (await client.ask("GET", f"/subjects/{encoded}/versions/1"))[1]["subject"] == name
    assert sorted((await client.ask("GET", "/subjects"))[1]) == sorted(["a/b", "a:b", " x y", "ä", "%"])


async def test_soft_and_permanent_deletion(client: Client) -> None:
    await client.register("s", record("a"))
    await client.register("s", record("a", "b", b=0))
    assert (await client.ask("DELETE", "/subjects/s/versions/1?permanent=true"))[1]["error_code"] == 40407
    assert await client.ask("DELETE", "/subjects/s/versions/1") == (200, 1)
    assert (await client.ask("DELETE", "/subjects/s/versions/1"))[1]["error_code"] == 40406
    assert await client.ask("GET", "/subjects/s/versions") == (200, [2])
    assert await client.ask("GET", "/subjects/s/versions?deleted=true") == (200, [1, 2])
    assert await client.ask("GET", "/subjects/s/versions?deletedOnly=true") == (200, [1])
    assert (await client.ask("GET", "/subjects/s/versions/1?deleted=true"))[1]["deleted"] is True
    assert (await client.ask("GET", "/schemas/ids/1"))[0] == 200
    assert await client.ask("DELETE", "/subjects/s/versions/1?permanent=true") == (200, 1)
    assert (await client.ask("GET", "/schemas/ids/1"))[1]["error_code"] == 40403

    assert (await client.ask("DELETE", "/subjects/s?permanent=true"))[1]["error_code"] == 40405
    assert await client.ask("DELETE", "/subjects/s") == (200, [2])
    assert (await client.ask("DELETE", "/subjects/s"))[1]["error_code"] == 40404
    assert await client.ask("GET", "/subjects") == (200, [])
    assert await client.ask("GET", "/subjects?deleted=true") == (200, ["s"])
    assert await client.ask("GET", "/subjects?deletedOnly=true") == (200, ["s"])
    assert await client.register("s", record("a", "b", b=0)) == 2  # equal to the deleted one
    assert await client.ask("GET", "/subjects/s/versions?deleted=true") == (200, [3])
    assert await client.ask("DELETE", "/subjects/s") == (200, [3])
    assert await client.ask("DELETE", "/subjects/s?permanent=true") == (200, [3])
    assert (await client.ask("GET", "/schemas/ids/2"))[1]["error_code"] == 40403
    assert await client.register("t", TEXT) == 3


async def test_references(client: Client) -> None:
    await client.register("inner", record("a", name="Inner"))
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "i", "type": "Inner"}]}
    references = [{"name": "Inner", "subject": "inner", "version": 1}]
    assert await client.register("outer", outer, references=references) == 2
    assert (await client.ask("GET", "/subjects/outer/versions/1"))[1]["references"] == references
    assert await client.ask("GET", "/subjects/inner/versions/1/referencedby") == (200, [2])
    status, answer = await client.ask("DELETE", "/subjects/inner/versions/1")
    assert (status, answer["error_code"]) == (422, 42206)
    assert "{magic=1,keytype=SCHEMA,subject=inner,version=1}" in answer["message"]
    assert (await client.ask("DELETE", "/subjects/inner"))[1]["error_code"] == 42206
    resolved = (await client.ask("GET", "/schemas/ids/2?format=resolved"))[1]["schema"]
    assert json.loads(resolved)["fields"][0]["type"]["name"] == "Inner"
    # The same schema with everything resolved is the same version.
    assert (await client.ask("POST", "/subjects/outer", {"schema": resolved}))[1]["version"] == 1
    assert await client.ask("DELETE", "/subjects/outer") == (200, [1])
    assert await client.ask("DELETE", "/subjects/inner") == (200, [1])


async def test_lists_are_cut_and_chosen(client: Client) -> None:
    for name in ("a-1", "a-2", "b-1", ":.c:a-3"):
        await client.register(name, INT)
    everything = [":.c:a-3", "a-1", "a-2", "b-1"]
    assert await client.ask("GET", "/subjects") == (200, everything)
    assert await client.ask("GET", "/subjects?subjectPrefix=a-") == (200, ["a-1", "a-2"])
    assert await client.ask("GET", "/subjects?subjectPrefix=:*:a-") == (200, [":.c:a-3", "a-1", "a-2"])
    assert await client.ask("GET", "/subjects?subjectPrefix=:.c:") == (200, [":.c:a-3"])
    assert await client.ask("GET", "/subjects?offset=1&limit=2") == (200, everything[1:3])
    await client.register("a-1", LONG)
    status, schemas = await client.ask("GET", "/schemas?subjectPrefix=a-")
    assert [(it["subject"], it["version"]) for it in schemas] == [("a-1", 1), ("a-1", 2), ("a-2", 1)]
    latest = (await client.ask("GET", "/schemas?subjectPrefix=a-&latestOnly=true"))[1]
    assert [(it["subject"], it["version"]) for it in latest] == [("a-1", 2), ("a-2", 1)]
    assert status == 200


async def test_contexts_have_ids_of_their_own(client: Client) -> None:
    assert await client.register("s", INT) == 1
    assert await client.register(":.one:s", LONG) == 1
    status, answer = await client.ask("POST", "/contexts/.one/subjects/t/versions", {"schema": TEXT})
    assert (status, answer["id"]) == (200, 2)
    assert await client.ask("GET", "/contexts") == (200, [".", ".one"])
    assert await client.ask("GET", "/contexts/.one/subjects") == (200, [":.one:s", ":.one:t"])
    assert (await client.ask("GET", "/schemas/ids/1"))[1]["schema"] == INT
    assert (await client.ask("GET", "/schemas/ids/1?subject=:.one:"))[1]["schema"] == LONG
    assert (await client.ask("GET", "/contexts/.one/schemas/ids/1"))[1]["schema"] == LONG
    assert (await client.ask("GET", "/schemas/ids/2?subject=t"))[1]["schema"] == TEXT
    assert (await client.ask("GET", "/subjects/:.one:s/versions/1"))[1]["subject"] == ":.one:s"
    assert (await client.ask("GET", "/subjects/:.:s/versions/1"))[1]["subject"] == "s"


async def test_metadata_and_rules_are_kept_and_inherited(client: Client) -> None:
    metadata = {"properties": {"owner": "me", "major": "1"}, "tags": {"**.a": ["PII"]}}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}]}
    await client.register("s", record("a"), metadata=metadata, ruleSet=rules)
    first = (await client.ask("GET", "/subjects/s/versions/1"))[1]
    assert (first["metadata"], first["ruleSet"]) == (metadata, rules)
    await client.register("s", record("a", "b", b=1))
    assert (await client.ask("GET", "/subjects/s/versions/2"))[1]["metadata"] == metadata
    assert (await client.ask("GET", "/subjects/s/metadata?key=owner&value=me"))[1]["version"] == 2
    assert (await client.ask("GET", "/subjects/s/metadata?key=owner&value=you"))[1]["error_code"] == 40403
    assert (await client.ask("POST", "/subjects/s", {"schema": record("a")}))[1]["version"] == 1


async def test_what_it_says_about_itself(client: Client) -> None:
    assert await client.ask("GET", "/") == (200, {})
    assert await client.ask("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    clusters = (await client.ask("GET", "/v1/metadata/id"))[1]["scope"]["clusters"]
    assert clusters["kafka-cluster"]
    assert (await client.ask("GET", "/v1/metadata/version"))[0] == 200
