"""Compatibility levels, modes and checks over the HTTP interface."""

from __future__ import annotations

import json

import pytest

from tests.registry.conftest import Client
from tests.registry.test_subjects import INT, LONG, TEXT, record


async def test_levels_by_subject_context_and_for_everything(client: Client) -> None:
    assert await client.ask("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert await client.ask("PUT", "/config", {"compatibility": "full"}) == (200, {"compatibility": "full"})
    assert await client.ask("GET", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert (await client.ask("GET", "/config/s"))[1]["error_code"] == 40408
    assert await client.ask("GET", "/config/s?defaultToGlobal=true") == (200, {"compatibilityLevel": "FULL"})
    await client.ask("PUT", "/contexts/.c/config", {"compatibility": "NONE"})
    assert await client.ask("GET", "/config/:.c:?defaultToGlobal=false") == (200, {"compatibilityLevel": "NONE"})
    in_context = await client.ask("GET", "/config/:.c:s?defaultToGlobal=true")
    assert in_context == (200, {"compatibilityLevel": "NONE"})
    await client.ask("PUT", "/config/s", {"compatibility": "FORWARD", "normalize": True})
    assert await client.ask("GET", "/config/s") == (200, {"normalize": True, "compatibilityLevel": "FORWARD"})
    status, answer = await client.ask("DELETE", "/config/s")
    assert (status, answer["compatibilityLevel"]) == (200, "FORWARD")
    assert (await client.ask("DELETE", "/config/s"))[1]["error_code"] == 40401
    assert (await client.ask("PUT", "/config", {"compatibility": "SOMETIMES"}))[1]["error_code"] == 42203
    assert (await client.ask("PUT", "/config", {}))[1]["error_code"] == 42203


# Each change: what the new schema is, and the levels at which it may follow {a} and then {a, b=0}.
FIELDS = [
    (record("a", "b", "c", b=0, c=0), {"BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL"}),
    (record("a", "b", "c", b=0), {"FORWARD", "FORWARD_TRANSITIVE"}),
    (record("a"), {"BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL"}),
    (record("b", b=0), {"BACKWARD", "BACKWARD_TRANSITIVE"}),
    (record("a", "b"), {"BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL"}),
    (record("d", name="Other"), set()),
]


@pytest.mark.parametrize(("new", "levels"), FIELDS)
async def test_the_seven_levels(client: Client, new: str, levels: set[str]) -> None:
    await client.register("s", record("a"))
    await client.register("s", record("a", "b", b=0))
    if "FORWARD_TRANSITIVE" in levels and "BACKWARD_TRANSITIVE" in levels:
        levels = levels | {"FULL_TRANSITIVE"}
    for level in ("BACKWARD", "FORWARD", "FULL"):
        for name in (level, f"{level}_TRANSITIVE"):
            await client.ask("PUT", "/config/s", {"compatibility": name})
            answer = (await client.ask("POST", "/compatibility/subjects/s/versions", {"schema": new}))[1]
            assert answer == {"is_compatible": name in levels}, name
    await client.ask("PUT", "/config/s", {"compatibility": "NONE"})
    assert (await client.ask("POST", "/compatibility/subjects/s/versions", {"schema": new}))[1]["is_compatible"]


async def test_an_incompatible_schema_is_refused_and_told_why(client: Client) -> None:
    await client.register("s", record("a"))
    status, answer = await client.ask("POST", "/subjects/s/versions", {"schema": record("a", "b")})
    assert (status, answer["error_code"]) == (409, 409)
    assert answer["message"].startswith(
        "The schema is incompatible with an earlier one of subject s: "
        "[{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'the new schema has a field 'b' at '/fields/1' "
        "without a default, and the old one does not have it', additionalInfo:'b'}, {oldSchemaVersion: 1}, "
    )
    body = {"schema": record("a", "b")}
    status, answer = await client.ask("POST", "/compatibility/subjects/s/versions/latest?verbose=true", body)
    assert (status, answer["is_compatible"]) == (200, False)
    assert answer["messages"][-1] == "{compatibility: 'BACKWARD'}"
    assert (await client.ask("POST", "/compatibility/subjects/s/versions/7", body))[1]["error_code"] == 40402
    for path in ("/compatibility/subjects/new/versions/latest", "/compatibility/subjects/new/versions"):
        assert await client.ask("POST", path, body) == (200, {"is_compatible": True})


async def test_modes(client: Client) -> None:
    await client.register("s", INT)
    assert await client.ask("GET", "/mode") == (200, {"mode": "READWRITE"})
    assert await client.ask("PUT", "/mode", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    status, answer = await client.ask("POST", "/subjects/s/versions", {"schema": LONG})
    assert (status, answer) == (422, {"error_code": 42205, "message": "Subject s is in read-only mode"})
    assert (await client.ask("DELETE", "/subjects/s"))[1]["error_code"] == 42205
    assert (await client.ask("PUT", "/config/s", {"compatibility": "NONE"}))[1]["error_code"] == 42205
    await client.ask("PUT", "/mode/s", {"mode": "READWRITE"})
    assert await client.ask("GET", "/mode/s") == (200, {"mode": "READWRITE"})
    assert await client.register("s", LONG) == 2
    await client.ask("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
    assert (await client.ask("POST", "/subjects/s/versions", {"schema": TEXT}))[1]["error_code"] == 42205
    await client.ask("PUT", "/mode", {"mode": "READWRITE"})
    assert (await client.ask("PUT", "/mode", {"mode": "SOMEHOW"}))[1]["error_code"] == 42204
    assert await client.ask("DELETE", "/mode/s") == (200, {"mode": "READWRITE"})
    assert (await client.ask("DELETE", "/mode/s"))[1]["error_code"] == 40401


async def test_import_takes_ids_and_versions(client: Client) -> None:
    await client.register("s", INT)
    body = {"schema": LONG, "id": 50, "version": 7}
    assert (await client.ask("POST", "/subjects/t/versions", body))[1]["error_code"] == 42205
    assert (await client.ask("PUT", "/mode", {"mode": "IMPORT"}))[1]["error_code"] == 42205
    assert (await client.ask("PUT", "/mode/t", {"mode": "IMPORT"}))[0] == 200
    assert (await client.ask("POST", "/subjects/t/versions", body))[1]["id"] == 50
    assert (await client.ask("GET", "/subjects/t/versions/7"))[1]["id"] == 50
    status, answer = await client.ask("POST", "/subjects/t/versions", {"schema": TEXT, "id": 50, "version": 8})
    assert (status, answer["error_code"]) == (422, 42205)
    assert (await client.ask("POST", "/subjects/t/versions", {"schema": TEXT}))[1]["error_code"] == 42205
    await client.ask("PUT", "/mode/t", {"mode": "READWRITE"})
    assert await client.register("u", TEXT) == 51


async def test_a_deleted_subject_loses_its_settings(client: Client) -> None:
    await client.register("s", INT)
    await client.ask("PUT", "/config/s", {"compatibility": "NONE"})
    await client.ask("PUT", "/mode/s", {"mode": "READWRITE"})
    await client.ask("DELETE", "/subjects/s")
    assert (await client.ask("GET", "/config/s"))[1]["error_code"] == 40408
    assert (await client.ask("GET", "/mode/s"))[1]["error_code"] == 40409


async def test_an_alias_and_a_compatibility_group(client: Client) -> None:
    await client.register("real", record("a"), metadata={"properties": {"major": "1"}})
    await client.ask("PUT", "/config/other", {"alias": "real"})
    assert (await client.ask("GET", "/subjects/other/versions/1"))[1]["subject"] == "real"
    await client.ask("PUT", "/config/real", {"compatibilityGroup": "major"})
    broken = {"schema": record("z", name="Z"), "metadata": {"properties": {"major": "1"}}}
    assert (await client.ask("POST", "/subjects/real/versions", broken))[0] == 409
    broken["metadata"] = {"properties": {"major": "2"}}
    assert (await client.ask("POST", "/subjects/real/versions", broken))[1]["version"] == 2


async def test_normalised_schemas_are_equal(client: Client) -> None:
    one = json.dumps({"type": "int", "b": 1, "a": 2})
    other = json.dumps({"a": 2, "type": "int", "b": 1})
    await client.ask("POST", "/subjects/s/versions?normalize=true", {"schema": one})
    found = await client.ask("POST", "/subjects/s?normalize=true", {"schema": other})
    assert found[1]["version"] == 1
    assert found[0] == 200
