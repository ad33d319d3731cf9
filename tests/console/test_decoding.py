"""Keys and values as they are shown: every format, and what is cut or refused."""

from __future__ import annotations

import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from ottla.console.messages.decoding import Format, decode
from ottla.console.messages.schemas import Schemas
from ottla.server.schemas.source import Codecs
from ottla.settings.config import BrokerConfig

SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": "double"}],
                },
            },
        },
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "parent", "type": ["null", "shop.Order"]},
    ],
}
BODY = (
    b"\x54"  # 42
    b"\x02\x06hi!"  # the string of the union
    b"\x02\x02a" + struct.pack("<d", 1.5) + b"\x00"  # one line
    b"\x02"  # PAID
    b"\xab\xcd"
    b"\x01\x08\x02k\x05\x00"  # a block that gives its size, k: -3
    b"\x00"
)
VALUE = b"\x00\x00\x00\x00\x07" + BODY
MEANING = {
    "id": 42,
    "note": "hi!",
    "lines": [{"sku": "a", "price": 1.5}],
    "state": "PAID",
    "hash": "abcd",
    "tags": {"k": -3},
    "parent": None,
}

NONE = Schemas(BrokerConfig(), Codecs())


def folder_with_schema(folder: Path) -> Schemas:
    (folder / "7.avsc").write_text(json.dumps(SCHEMA))
    return Schemas(BrokerConfig({"ottla.console.schema.dir": str(folder)}), Codecs())


@pytest.mark.parametrize(
    ("data", "format_", "text"),
    [
        (b"hello", Format.TEXT, "hello"),
        ("Plzeň\n".encode(), Format.TEXT, "Plzeň\n"),
        (b'{"b":[1,2],"a":"\\u010d"}', Format.JSON, '{\n  "b": [\n    1,\n    2\n  ],\n  "a": "č"\n}'),
        (b'{"broken', Format.TEXT, '{"broken'),
        (b"\x00\x01", Format.HEX, "000000  00 01                                             .."),
        (b"", Format.TEXT, ""),
    ],
)
async def test_what_it_is_is_found_out(data: bytes, format_: Format, text: str) -> None:
    shown = await decode(data, Format.AUTO, NONE)
    assert (shown.format, shown.text, shown.size_bytes) == (format_, text, len(data))


async def test_null_is_not_empty() -> None:
    assert (await decode(None, Format.AUTO, NONE)).text is None


async def test_integers_are_named() -> None:
    assert (await decode((42).to_bytes(8, "big"), Format.AUTO, NONE)).note == "int64 42"
    assert (await decode((-1).to_bytes(4, "big", signed=True), Format.AUTO, NONE)).note == "int32 -1"


async def test_avro_by_a_schema_of_the_folder(tmp_path: Path) -> None:
    schemas = folder_with_schema(tmp_path)
    shown = await decode(VALUE, Format.AUTO, schemas)
    assert shown.format is Format.AVRO
    assert json.loads(shown.text or "") == MEANING
    unknown = await decode(b"\x00\x00\x00\x00\x08abc", Format.AUTO, schemas)
    assert unknown.format is Format.HEX
    assert unknown.note == "perhaps of a schema, but schema 8 is not known"


async def test_avro_that_is_none_is_shown_as_bytes(tmp_path: Path) -> None:
    shown = await decode(VALUE[:-1], Format.AVRO, folder_with_schema(tmp_path))
    assert shown.format is Format.HEX
    assert shown.note.startswith("schema 7: it is not Avro of this schema")


async def test_large_values_are_cut() -> None:
    large = await decode(b"x" * 100_000, Format.AUTO, NONE, 1000)
    assert large.is_cut
    assert len(large.text or "") == 1000
    laid_out = await decode(json.dumps(list(range(9000))).encode(), Format.AUTO, NONE, 1000)
    assert laid_out.is_cut
    assert len(laid_out.text or "") == 1000
    digits = await decode(b"\xff" * 100_000, Format.AUTO, NONE, 1000)
    assert digits.is_cut
    cut_in_a_character = await decode("č".encode() * 1000, Format.AUTO, NONE, 999)
    assert cut_in_a_character.text == "č" * 499


async def test_json_that_nests_without_end_is_text() -> None:
    shown = await decode(b"[" * 60_000, Format.JSON, NONE)
    assert shown.note == "not JSON"


class Registry(BaseHTTPRequestHandler):
    """A schema registry with one schema, as Confluent's answers."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        known = self.path == "/base/schemas/ids/7"
        body = json.dumps({"schema": json.dumps(SCHEMA)} if known else {"error_code": 40403}).encode()
        self.send_response(200 if known else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Tests have no use for it."""


async def test_avro_by_a_schema_of_the_registry_which_is_asked_once() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            schemas = Schemas(
                BrokerConfig({"ottla.console.schema.registry.url": f"http://127.0.0.1:{server.server_port}/base/"}),
                Codecs(),
            )
            for _ in range(3):
                assert (await decode(VALUE, Format.AUTO, schemas)).format is Format.AVRO
                assert (await decode(b"\x00\x00\x00\x00\x08abc", Format.AUTO, schemas)).format is Format.HEX
        finally:
            server.shutdown()
            thread.join()
    assert Registry.asked == ["/base/schemas/ids/7", "/base/schemas/ids/8"]


async def test_a_registry_that_cannot_be_reached_is_no_reason_to_fail() -> None:
    schemas = Schemas(BrokerConfig({"ottla.console.schema.registry.url": "http://127.0.0.1:9"}), Codecs())
    assert (await decode(VALUE, Format.AUTO, schemas)).format is Format.HEX
    schemas = Schemas(BrokerConfig({"ottla.console.schema.registry.url": "file:///etc"}), Codecs())
    assert (await decode(VALUE, Format.AUTO, schemas)).format is Format.HEX
