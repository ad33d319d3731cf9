"""Whatever bytes come in: only DecodeError comes out, and nothing is made that the bytes do not pay for."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.kproto import codec, reference
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.compiler.runtime import uvarint
from ottla.kproto.errors import DecodeError
from ottla.kproto.headers import RequestHeader, parse_request_header, parse_response_header
from ottla.kproto.hot import produce
from ottla.kproto.messages import all_message_classes
from ottla.kproto.messages.data.fetch import FetchResponse
from ottla.kproto.messages.data.produce import ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.metadata import MetadataResponse
from ottla.kproto.schema import Message
from tests.kproto.random_messages import random_message

EXAMPLES = 20
MOST_ENDS = 300
UNHURRIED = settings(deadline=None, suppress_health_check=list(HealthCheck))


def _parse_both(cls: type[Message], version: int, raw: bytes) -> None:
    """Parsing succeeds in both codecs with the same result, or fails in both with DecodeError."""
    try:
        expected: Message | None = reference.parse(cls, version, raw)
    except DecodeError:
        expected = None
    if expected is None:
        with pytest.raises(DecodeError):
            codec.parse(cls, version, raw)
    else:
        parsed = codec.parse(cls, version, raw)
        assert parsed == expected or _holds_nan(parsed)


def _holds_nan(message: Message) -> bool:
    return "nan" in repr(message)


def test_random_bytes(message_class: type[Message], example_factor: int) -> None:
    versions = st.integers(message_class.VERSIONS.lowest, message_class.VERSIONS.highest)

    @settings(UNHURRIED, max_examples=10 * example_factor)
    @given(versions, st.binary(max_size=80))
    @example(message_class.VERSIONS.highest, b"")
    @example(message_class.VERSIONS.highest, b"\xff" * 64)
    @example(message_class.VERSIONS.lowest, b"\x7f" * 64)
    def survives(version: int, raw: bytes) -> None:
        _parse_both(message_class, version, raw)

    survives()


def test_mutated_messages(message_class: type[Message], example_factor: int) -> None:
    version = message_class.VERSIONS.highest
    random = Random(f"mutations of {message_class.__name__}")
    for number in range(EXAMPLES * example_factor):
        raw = bytearray(codec.build(random_message(message_class, version, number), version))
        if raw:
            for _ in range(random.randint(1, 3)):
                raw[random.randrange(len(raw))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        _parse_both(message_class, version, bytes(raw))


def test_truncated_and_extended_messages(message_class: type[Message], example_factor: int) -> None:
    version = message_class.VERSIONS.highest
    random = Random(f"ends of {message_class.__name__}")
    for number in range(2 * example_factor):
        raw = codec.build(random_message(message_class, version, number), version)
        for size in random.sample(range(len(raw)), min(len(raw), MOST_ENDS)):
            with pytest.raises(DecodeError):
                codec.parse(message_class, version, raw[:size])
        with pytest.raises(DecodeError):
            codec.parse(message_class, version, raw + b"\x00")


@given(st.binary(max_size=40))
def test_header_parsers(raw: bytes) -> None:
    for parse in (parse_request_header, lambda buf: parse_response_header(ApiKey.FETCH, 16, buf)):
        try:
            _, pos = parse(raw)
        except DecodeError:
            continue
        assert 0 < pos <= len(raw)


def _largest_claims(cls: type[Message], version: int) -> list[bytes]:
    """Bodies that claim as much as a length can, at every place where the default message has a zero."""
    raw = codec.build(cls(), version)
    claims = [b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x7f\xff"]
    return [raw[:at] + claim + raw[at:] for at in range(len(raw)) for claim in claims]


def test_a_length_allocates_nothing_before_its_bytes_are_there() -> None:
    classes = list(all_message_classes())
    for cls in classes:
        codec.parse(cls, cls.VERSIONS.highest, codec.build(cls(), cls.VERSIONS.highest))
    tracemalloc.start()
    try:
        for cls in classes:
            for raw in _largest_claims(cls, cls.VERSIONS.highest):
                try:
                    codec.parse(cls, cls.VERSIONS.highest, raw)
                except DecodeError:
                    continue
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("cls", "version", "head", "element"),
    [
        (MetadataResponse, 12, b"\0\0\0\0\1\0\0\0\0\0", b"\0\0\1" + bytes(17) + b"\1" + bytes(5)),
        (FetchResponse, 16, bytes(10), bytes(16) + b"\1\0"),
    ],
    ids=["Metadata", "Fetch"],
)
def test_memory_is_a_small_multiple_of_the_input(
    cls: type[Message], version: int, head: bytes, element: bytes
) -> None:  # fmt: skip
    count = 20_000
    raw = head + uvarint(count + 1) + element * count + b"\0"
    codec.parse(cls, version, codec.build(cls(), version))
    tracemalloc.start()
    try:
        parsed = codec.parse(cls, version, raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert codec.build(parsed, version) == raw
    assert peak < 32 * len(raw)


def test_varint_has_at_most_five_bytes_and_32_bits() -> None:
    for raw in (b"\x80" * 5 + b"\x01", b"\xff\xff\xff\xff\x1f", b"\x80" * 40):
        for version in (12, 16):
            with pytest.raises(DecodeError):
                codec.parse(FetchResponse, version, bytes(10) + raw)
        with pytest.raises(DecodeError):
            reference.parse(FetchResponse, 16, bytes(10) + raw)


def test_hot_parser_of_a_topic_id_that_is_cut_off() -> None:
    with pytest.raises(DecodeError):
        produce.parse_request(13, b"\x01" + bytes(6) + b"\x02" + bytes(7))


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"\xc3\x28", "\ufffd("),
        (b"a\xffb", "a\ufffdb"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xe1\x80A", "\ufffdA"),
        (b"\xe1\x80", "\ufffd"),
        (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0\x80\xed\xb0\x80", "\ufffd\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"\xf0\x9f\x98x", "\ufffdx"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xf8\x88\x80\x80\x80", "\ufffd" * 5),
    ],
)
def test_what_is_not_utf8_is_replaced_as_java_does(sent: bytes, read: str) -> None:
    """The same in a header, in a compiled parser, in the definition of the encoding, and where Produce is read fast."""
    header = b"\x00\x03\x00\x09\x00\x00\x00\x01" + len(sent).to_bytes(2, "big") + sent
    assert parse_request_header(header + b"\x00")[0].client_id == read
    assert codec.parse(RequestHeader, 1, header).client_id == read
    assert reference.parse(RequestHeader, 1, header).client_id == read
    for version in (8, 9):
        request = ProduceRequest(topic_data=[TopicProduceData(name="N" * len(sent), partition_data=[])])
        body = codec.build(request, version).replace(b"N" * len(sent), sent)
        assert produce.parse_request(version, body).topic_data[0].name == read
        assert codec.parse(ProduceRequest, version, body).topic_data[0].name == read


def test_a_string_that_would_not_fit_with_its_bytes_replaced_is_malformed() -> None:
    """Or nobody could store it, or answer with it."""
    for size, fits in ((10_922, True), (10_923, False), (32_767, False)):
        header = b"\x00\x03\x00\x09\x00\x00\x00\x01" + size.to_bytes(2, "big") + b"\xff" * size
        parsers: list[Callable[[bytes], Message]] = [
            lambda raw: parse_request_header(raw + b"\x00")[0],
            lambda raw: codec.parse(RequestHeader, 1, raw),
            lambda raw: reference.parse(RequestHeader, 1, raw),
        ]
        for parse in parsers:
            if fits:
                read = parse(header)
                assert codec.build(read, 1) == header.replace(
                    size.to_bytes(2, "big") + b"\xff" * size, (3 * size).to_bytes(2, "big") + b"\xef\xbf\xbd" * size
                )
            else:
                with pytest.raises(DecodeError):
                    parse(header)


def test_tags_must_ascend() -> None:
    body = bytes(8) + b"\xff\xff"
    assert codec.parse(RequestHeader, 2, body + b"\x02\x01\x00\x02\x00").unknown_tagged_fields
    for tags in (b"\x02\x01\x00\x01\x00", b"\x02\x02\x00\x01\x00"):
        with pytest.raises(DecodeError, match="out of order"):
            codec.parse(RequestHeader, 2, body + tags)
