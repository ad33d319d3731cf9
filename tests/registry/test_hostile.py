"""Whatever is sent, the answer is an error with a sentence, and the registry goes on."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.registry import formats
from ottla.registry.errors import RegistryError
from ottla.registry.formats import JSON, KINDS, PROTOBUF
from tests.registry.conftest import Client

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**30), 10**30),
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from(
            ["record", "int", "null", "object", "string", "x", "#", "#/a", "", "ä\n", "enum", "array", "fixed"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "type",
                        "name",
                        "fields",
                        "items",
                        "symbols",
                        "size",
                        "default",
                        "namespace",
                        "aliases",
                        "values",
                    ),
                    *(
                        "properties",
                        "required",
                        "$ref",
                        "enum",
                        "const",
                        "not",
                        "oneOf",
                        "allOf",
                        "multipleOf",
                        "maximum",
                    ),
                    *("patternProperties", "additionalProperties", "dependencies", "$id", "$schema", "definitions"),
                ]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=15,
)


@settings(deadline=None, max_examples=300)
@given(VALUES, VALUES, st.sampled_from(["AVRO", JSON]))
def test_any_json_is_a_schema_or_refused(one: Any, other: Any, kind: str) -> None:
    parsed = []
    for value in (one, other):
        with suppress(RegistryError):
            parsed.append(formats.parse(kind, json.dumps(value), {}))
    if len(parsed) == 2:
        with suppress(RegistryError):
            formats.messages(kind, *parsed, is_reader_new=True)


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet='message A{}int32=;1"\\\n/*0optinalrep.,<>[]()\x00ä', max_size=60))
def test_any_text_is_protobuf_or_refused(text: str) -> None:
    for given_text in (text, f'syntax = "proto3"; message A {{ {text} }}'):
        with suppress(RegistryError):
            formats.parse(PROTOBUF, given_text, {}).normalized()


NAMES = ("schema", "schemaType", "references", "metadata", "ruleSet", "id", "version", "compatibility", "mode", "alias")
SENT: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 2**40, 1.5, "", "x", '"int"', '{"type":"string"}', "{}", "FULL", "IMPORT", *KINDS),
    *([], [1], {}, {"properties": 5}, {"properties": {"a": []}}, {"domainRules": {}}, {"domainRules": [1]}, {"a": {}}),
    *([{"name": "a", "subject": "s", "version": 1}], [{"name": 1}], [{"name": "a", "subject": "", "version": 1}]),
)
PATHS = ("/subjects/s/versions", "/subjects/s", "/compatibility/subjects/s/versions")


async def test_any_body_has_an_answer(client: Client) -> None:
    chance = random.Random(47)
    for _ in range(150):
        body = {name: chance.choice(SENT) for name in chance.sample(NAMES, chance.randrange(len(NAMES)))}
        for method, path in (("POST", chance.choice(PATHS)), ("PUT", "/config/s"), ("PUT", "/mode/t")):
            status, answer = await client.ask(method, path, body)
            assert status < 500, (path, body, answer)


async def test_the_request_itself_may_be_anything(client: Client) -> None:
    for path in (
        "//",
        "/subjects//versions",
        "/subjects/%ff%fe/versions",
        "/%00",
        "/subjects/a/versions/1/schema/x",
        "/contexts/x",
    ):
        assert (await client.ask("GET", path))[0] in (200, 404, 405, 422), path
    for raw in (b"", b"\xff\xfe", b"null", b'{"schema": NaN}', b'{"schema": 1e999}', b'{"a":' * 500, b"1" * 5_000):
        status, answer = await client.ask("POST", "/subjects/s/versions", raw=raw)
        assert status in (400, 422), (raw, answer)
    assert (await client.ask("GET", "/subjects?" + "a=1&" * 100))[0] == 400
    assert (await client.ask("GET", "/subjects?offset=x"))[0] == 422
    assert (await client.ask("GET", "/subjects?offset=-5&limit=-7"))[0] == 200


@pytest.mark.parametrize("name", ["a/b", "x" * 300, "\ud800", "a\x00b", "."])
async def test_a_reference_with_any_name(client: Client, name: str) -> None:
    inner = 'syntax = "proto3"; message In {}'
    await client.register("inner", inner, schemaType=PROTOBUF)
    references = [{"name": it, "subject": "inner", "version": 1} for it in (name, "a")]
    body = {"schema": 'syntax = "proto3"; message Out {}', "schemaType": PROTOBUF, "references": references}
    status, answer = await client.ask("POST", "/subjects/outer/versions", body)
    assert status in (200, 422), answer
    body = {"schema": 'syntax = "proto3"; // \ud800\nmessage Out {}', "schemaType": PROTOBUF}
    assert (await client.ask("POST", "/subjects/outer/versions", body))[0] == 422
