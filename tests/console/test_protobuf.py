"""Protobuf by a descriptor set: shown, searched and exported; and what is said where that cannot be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.console.messages.decoding import Format, decode
from ottla.console.messages.protobuf import Descriptors, _body
from ottla.console.messages.schemas import Schemas
from ottla.kproto.records import Record
from ottla.server.schemas.source import Codecs
from ottla.settings.config import BrokerConfig
from tests.console.test_messages import offsets

pytest.importorskip("google.protobuf")

Browse = Callable[..., Any]

FIELDS = {"id": (1, "TYPE_INT64"), "customer": (2, "TYPE_STRING"), "paid": (3, "TYPE_BOOL")}
VALUE = b"\x08\x2a\x12\x04Jana\x18\x01"
MEANING = {"id": "42", "customer": "Jana", "paid": True}


def descriptor_set(path: Path, fields: dict[str, tuple[int, str]] | None = None) -> Path:
    """What protoc writes for `message Order`."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for name, (number, kind) in (fields or FIELDS).items():
        message.field.add(name=name, number=number, type=kind, label="LABEL_OPTIONAL", json_name=name)
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return path


def settings(path: Path) -> dict[str, str]:
    return {
        "ottla.console.protobuf.descriptor.set": str(path),
        "ottla.console.protobuf.types": "t=shop.Order, t/key=shop.Order",
    }


def schemas(path: Path) -> Schemas:
    return Schemas(BrokerConfig(settings(path)), Codecs())


async def test_a_message_is_shown_by_its_type(tmp_path: Path) -> None:
    it = schemas(descriptor_set(tmp_path / "shop.desc"))
    shown = await decode(VALUE, Format.AUTO, it, message_type="shop.Order")
    assert (shown.format, shown.note) == (Format.PROTOBUF, "Protobuf, shop.Order")
    assert json.loads(shown.text or "") == MEANING
    # As Confluent's serializer writes it: schema 7, the first type of its file; or the type in a type.
    for prefix in (b"\x00\x00\x00\x00\x07\x00", b"\x00\x00\x00\x00\x07\x04\x02\x00"):
        assert (
            json.loads((await decode(prefix + VALUE, Format.PROTOBUF, it, message_type="shop.Order")).text or "")
            == MEANING
        )


@pytest.mark.parametrize(
    ("data", "type_name", "note"),
    [
        (b"\xff\xff", "shop.Order", "not Protobuf of type shop.Order"),
        (b"\x00\x00", "shop.Order", "not Protobuf of type shop.Order"),
        (b"\x00\x00\x00\x00\x07\xff", "shop.Order", "not Protobuf of type shop.Order"),
        (VALUE, "shop.Parcel", "the descriptor set has no type shop.Parcel"),
        (VALUE * 10_000, "shop.Order", "Protobuf shop.Order, too large to be decoded"),
        (VALUE, None, "no Protobuf type is set for this topic"),
    ],
)
async def test_what_is_said_otherwise(tmp_path: Path, data: bytes, type_name: str | None, note: str) -> None:
    it = schemas(descriptor_set(tmp_path / "shop.desc"))
    shown = await decode(data, Format.PROTOBUF, it, message_type=type_name)
    assert (shown.format, shown.note) == (Format.HEX, note)


async def test_files_that_are_no_descriptor_set(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    _, why = await Descriptors(lambda: str(path)).decode(VALUE, "shop.Order")
    assert why == "the descriptor set cannot be read: No such file or directory"
    path.write_bytes(b"\xff not a descriptor set")
    _, why = await Descriptors(lambda: str(path)).decode(VALUE, "shop.Order")
    assert why == "the file is not a descriptor set that protoc wrote with --include_imports"
    assert (await Descriptors(lambda: None).decode(VALUE, "shop.Order"))[1].endswith("names no file")


async def test_a_file_that_has_changed_is_read_again(tmp_path: Path, autojump_clock: Any) -> None:
    path = descriptor_set(tmp_path / "shop.desc")
    it = Descriptors(lambda: str(path))
    assert await it.decode(VALUE, "shop.Order") == (MEANING, "")
    descriptor_set(path, {"number": (1, "TYPE_INT64")})
    os.utime(path, ns=(1, 1))
    import trio

    await trio.sleep(31)
    value, _ = await it.decode(VALUE, "shop.Order")
    assert value == {"number": "42"}


def test_a_prefix_that_does_not_end_is_refused() -> None:
    for data in (b"\x00", b"\x00\x00\x00\x00\x01" + b"\xff" * 20):
        with pytest.raises(ValueError, match="which message"):
            _body(data)


async def test_pages_searches_and_files_know_the_type(browse: Browse, tmp_path: Path) -> None:
    async with browse(settings(descriptor_set(tmp_path / "shop.desc"))) as browser:
        topic_id = await browser.node.create_topic("t")
        await browser.produce(topic_id, 0, Record(key=VALUE, value=VALUE), Record(value=b"\x08\x07"))
        page = await browser.get("topics/t/messages")
        assert page.text.count('"customer": "Jana"') == 4  # the line of each, and what it opens to
        assert offsets(await browser.get("topics/t/messages", json='$.id = "7"')) == [(0, 1)]
        assert '"customer": "Jana"' in (await browser.get("topics/t/messages/0/0")).text
        response = await browser.http.get("/console/topics/t/export", params={"file": "jsonl", "start": "oldest"})
        assert json.loads(response.text.splitlines()[0])["decoded"] == MEANING
