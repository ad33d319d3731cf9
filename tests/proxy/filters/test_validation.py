"""The filter that compares records with schemas: JSON Schema and Avro, from files and from a registry."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("jsonschema_rs")

import fastavro

from compat_tests.spark import registry as registries
from compat_tests.spark.registry import SchemaRegistry
from ottla.client.schema_registry import SchemaText
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceResponse
from ottla.proxy.errors import ProxyError
from ottla.proxy.filters.catalog import make_filters
from ottla.proxy.filters.filter import Filter
from ottla.proxy.filters.schemas import check_of
from ottla.testing import run_filter
from tests.proxy.filters.batches import Leader, batch, produce

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "price": {"type": "number", "minimum": 0}},
    "required": ["id"],
}
ORDER_AVRO: Any = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NONE = ErrorCode.NONE
INVALID = ErrorCode.INVALID_RECORD


def validation(**options: Any) -> Filter:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return make_filters([{"type": "validation", **named}])[0].filter


def schema_file(folder: Path, schema: Any) -> str:
    path = folder / "schema.json"
    path.write_text(json.dumps(schema))
    return str(path)


def sent(one: Filter, *values: bytes | None, **options: Any) -> PartitionProduceResponse:
    """What the producer of one batch is answered."""
    answer: Any = run_filter(one, produce(batch(*values, **options)), Leader())
    partitions: list[PartitionProduceResponse] = answer.responses[0].partition_responses
    return partitions[0]


def avro(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def test_json_that_does_not_fit_is_refused_record_by_record(tmp_path: Path) -> None:
    one = validation(json_schema=schema_file(tmp_path, ORDER), topics="t")
    assert sent(one, b'{"id": 1}', None, b'{"id": 2, "price": 0.5}').error_code == NONE
    answer = sent(one, b'{"id": 1}', b'{"price": 1}', b"{", b'{"id": 1, "price": -1}', b'{"id": NaN}')
    assert answer.error_code == INVALID
    assert {it.batch_index: it.batch_index_error_message for it in answer.record_errors} == {
        1: '$: "id" is a required property',
        2: "it is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        3: "$.price: -1 is less than the minimum of 0",
        4: "it is not JSON: NaN is not a number in JSON",
    }
    assert answer.error_message is not None
    assert answer.error_message.startswith(
        "One or more records have been rejected due to 4 record errors in total, and only showing the first three "
        "errors at most: [RecordError(batchIndex=1, message='$: \"id\" is a required property'), "
    )


def test_other_topics_and_keys(tmp_path: Path) -> None:
    schema = schema_file(tmp_path, ORDER)
    assert sent(validation(json_schema=schema, topics="orders"), b"no JSON").error_code == NONE
    keys = validation(json_schema=schema, part="key")
    assert sent(keys, b"no JSON", key=b'{"id": 1}').error_code == NONE
    assert sent(keys, b"no JSON", key=b"{}").error_code == INVALID


def test_what_is_nested_deeply_or_costly_to_match_is_a_wrong_record(tmp_path: Path) -> None:
    one = validation(json_schema=schema_file(tmp_path, {"items": {"pattern": "^(a+)+$"}}))
    for value in (b"[" * 100_000, b"[" * 900 + b"]" * 900, json.dumps(["a" * 10_000 + "b"]).encode()):
        assert sent(one, value).error_code in (INVALID, NONE)
    assert sent(one, b"[" * 100_000).record_errors[0].batch_index_error_message is not None


def test_at_most_a_hundred_records_are_named(tmp_path: Path) -> None:
    one = validation(json_schema=schema_file(tmp_path, ORDER))
    assert len(sent(one, *[b"{}"] * 150).record_errors) == 100


def test_avro(tmp_path: Path) -> None:
    one = validation(avro_schema=schema_file(tmp_path, ORDER_AVRO))
    fits = avro(ORDER_AVRO, {"id": 1 << 40})
    assert sent(one, fits, None).error_code == NONE
    errors = sent(one, fits + b"x", fits[:-1], b"").record_errors
    assert [it.batch_index for it in errors] == [0, 1, 2]
    assert errors[0].batch_index_error_message == "1 bytes follow the Avro value"


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ({"type": "array", "items": "null"}, "an Avro array of what takes no bytes"),
        (
            {"type": "array", "items": {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}},
            "an Avro array of what takes no bytes",
        ),
        ({"type": "recrd"}, "the Avro schema cannot be used"),
    ],
)
def test_avro_schemas_of_which_a_few_bytes_are_endless_are_refused(schema: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_of(SchemaText("AVRO", json.dumps(schema)))


def test_avro_types_may_be_named_and_used_again() -> None:
    point = {"type": "record", "name": "P", "namespace": "geo", "fields": [{"name": "x", "type": "int"}]}
    fields = [
        {"name": "a", "type": point},
        {"name": "b", "type": "geo.P"},
        {"name": "m", "type": {"type": "map", "values": "null"}},
    ]
    line = {"type": "record", "name": "Line", "fields": fields}
    check = check_of(SchemaText("AVRO", json.dumps(line)))
    assert check(avro(fastavro.parse_schema(line), {"a": {"x": 1}, "b": {"x": 2}, "m": {"k": None}})) is None


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with registries.running() as served:
        yield served


def framed(schema_id: int, value: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + value


def test_schemas_of_a_registry(registry: SchemaRegistry) -> None:
    order = registry.register("t-value", ORDER_AVRO)
    endless = registry.register("u-value", {"type": "array", "items": "null"})
    one = validation(registry=registry.url)
    fits = avro(ORDER_AVRO, {"id": 3})
    assert sent(one, framed(order, fits), None).error_code == NONE
    wrong = sent(one, framed(order, fits + b"x"), framed(99, fits), fits, framed(endless, b"\0"), b"\0\0")
    assert [it.batch_index_error_message for it in wrong.record_errors] == [
        "1 bytes follow the Avro value",
        "the registry has no schema 99",
        "it does not begin with the id of a schema",
        f"its schema {endless}: an Avro array of what takes no bytes might be without end",
        "it does not begin with the id of a schema",
    ]
    many = [framed(number, fits) for number in range(100, 130)]
    assert sent(one, *many).error_message == "a batch of 30 schemas"


def test_a_registry_that_is_down_has_producers_try_again() -> None:
    answer = sent(validation(registry="http://127.0.0.1:1"), framed(1, b""))
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "write one of json-schema, avro-schema and registry"),
        ({"json-schema": "/none"}, "The schema file /none cannot be read: No such file"),
        ({"registry": "registry:8081"}, "must be an http:// or https:// address"),
        ({"registry": "http://r", "part": "header"}, "part: 'header' is neither key nor value"),
    ],
)
def test_what_its_table_may_not_say(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProxyError) as raised:
        make_filters([{"type": "validation", **options}])
    assert str(raised.value).startswith("filter 1 (validation): ")
    assert sentence in str(raised.value)


@pytest.mark.parametrize(("name", "schema"), [("json-schema", {"type": "nonsense"}), ("avro-schema", "nonsense")])
def test_a_schema_that_is_none_is_refused_at_the_start(tmp_path: Path, name: str, schema: Any) -> None:
    with pytest.raises(ProxyError, match="cannot be used"):
        make_filters([{"type": "validation", name: schema_file(tmp_path, schema)}])
