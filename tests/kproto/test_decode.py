"""Captured bytes are shown readably, whatever form they come in."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.kproto import codec, decode, pcap
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError
from ottla.kproto.framing import frame_prefix
from ottla.kproto.headers import build_request_header, build_response_header
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateRequest
from ottla.kproto.messages.cluster.api_versions import ApiVersion, ApiVersionsResponse
from ottla.kproto.messages.data.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.kproto.messages.groups.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.kproto.messages.topics.metadata import MetadataResponse, MetadataResponsePartition
from ottla.kproto.records import Record, build_batch
from ottla.kproto.rendering import render, to_json
from ottla.kproto.schema import TaggedField

TOPIC_ID = UUID(int=7)
BATCH = build_batch([Record(key=b"k", value=b"hello"), Record(value=None)], base_offset=40)
REQUEST = build_request_header(ApiKey.FETCH, 16, 5, "me") + codec.build(
    FetchRequest(max_wait_ms=500, topics=[FetchTopic(topic_id=TOPIC_ID)]), 16
)
RESPONSE = build_response_header(ApiKey.FETCH, 16, 5) + codec.build(
    FetchResponse(
        error_code=3,
        responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[PartitionData(records=BATCH)])],
        unknown_tagged_fields=(TaggedField(9, b"\x01\x02"),),
    ),
    16,
)


def _frame(body: bytes) -> bytes:
    return frame_prefix(len(body)) + body


def test_hexadecimal_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert decode.main([REQUEST.hex(" ")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("request 5: FETCH v16 from 'me'\n")
    assert "  max_wait_ms: 500\n" in shown
    assert "  topics:\n    - topic_id: AAAAAAAAAAAAAAAAAAAABw\n      partitions: []\n" in shown


def test_response_from_a_file_with_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "response.bin"
    path.write_bytes(_frame(RESPONSE))
    assert decode.main([str(path), "--response", "fetch:16", "--records"]) == 0
    shown = capsys.readouterr().out
    assert "error_code: 3 UNKNOWN_TOPIC_OR_PARTITION" in shown
    assert "- batch of offsets 40 to 41, 2 records, none" in shown
    assert "40 at -1: 1 bytes 'k' -> 5 bytes 'hello'" in shown
    assert "41 at -1: null -> null" in shown
    assert "unknown tagged field 9: 2 bytes 0x0102" in shown


def test_json_of_several_frames(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stream = _frame(REQUEST) + _frame(REQUEST)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(stream)))
    assert decode.main(["--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == second
    assert first["api_key"] == "FETCH"
    assert first["body"]["topics"] == [{"topic": "", "topic_id": "AAAAAAAAAAAAAAAAAAAABw", "partitions": []}]


def test_every_kind_of_value_has_a_text() -> None:
    message = JoinGroupResponse(
        error_code=999,
        protocol_name=None,
        skip_assignment=True,
        members=[JoinGroupResponseMember(metadata=b"\x00\xff")],
    )
    shown = render(message, 9)
    assert "error_code: 999 (unknown)" in shown
    assert "protocol_name: null" in shown
    assert "skip_assignment: true" in shown
    assert "metadata: 2 bytes 0x00ff" in shown
    versions = render(ApiVersionsResponse(api_keys=[ApiVersion(api_key=1, max_version=18)]), 0)
    assert "- api_key: 1 FETCH" in versions
    assert "replica_nodes: [1, 2]" in render(MetadataResponsePartition(replica_nodes=[1, 2]), 9)
    assert "diverging_epoch:\n  epoch: 3" in render(PartitionData(diverging_epoch=EpochEndOffset(epoch=3)), 12)


def test_long_bytes_are_cut_and_null_stays_null() -> None:
    assert render(SaslAuthenticateRequest(auth_bytes=b"x" * 60), 2) == f"auth_bytes: 60 bytes '{'x' * 48}'…"
    assert to_json(JoinGroupResponse(protocol_name=None))["protocol_name"] is None
    assert to_json(MetadataResponse(unknown_tagged_fields=(TaggedField(3, b"a"),)))["unknown_tagged_fields"] == {
        "3": "61"
    }


def test_unreadable_batches_are_shown_as_such() -> None:
    shown = render(PartitionData(records=b"not a batch"), 12)
    assert "records: 11 bytes\n  - unreadable: " in shown


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, "batch"),
        ({"is_transactional": True, "producer_id": 5, "producer_epoch": 1, "base_sequence": 9}, "transactional"),
    ],
)
def test_batches_of_producers(options: dict[str, Any], kind: str) -> None:
    batch = build_batch([Record(value=b"v", headers=(("h", b"1"), ("n", None)))], base_offset=0, **options)
    shown = render(PartitionData(records=batch), 12, with_records=True)
    assert f"- {kind}" in shown
    assert ("producer 5 epoch 1 from 9" in shown) == bool(options)
    assert "h=1 bytes '1', n=null" in shown


def test_broken_batch_is_shown_as_such() -> None:
    broken = bytearray(BATCH)
    broken[-1] ^= 1
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=bytes(broken))])])
    raw = build_response_header(ApiKey.FETCH, 16, 5) + codec.build(message, 16)
    assert "CRC IS WRONG" in decode.decode_response(raw, ApiKey.FETCH, 16).text()


@pytest.mark.parametrize("arguments", [["zz"], ["00"], ["0063000000000001"], [RESPONSE.hex(), "--response", "1:12"]])
def test_what_cannot_be_read_is_said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert decode.main(arguments) == 1
    assert capsys.readouterr().err.startswith("unreadable: ")


def test_no_input_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO()))
    assert decode.main([]) == 1
    assert capsys.readouterr().err == "unreadable: there is nothing to decode: the input is empty\n"


@pytest.mark.parametrize("arguments", [["0012"], ["00", "--response", "FETCH:16"]])
def test_a_header_that_is_cut_short_is_said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert decode.main(arguments) == 1
    assert capsys.readouterr().err.endswith("header is malformed: it ends too early\n")


def test_the_broken_field_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert decode.main([RESPONSE[:-40].hex(), "--response", "FETCH:16"]) == 1
    assert "responses[0] -> partitions[0] -> records" in capsys.readouterr().err.replace("  ", " ")


@pytest.mark.parametrize("text", ["FETCH", "NOTHING:1", "FETCH:x", "4:0"])
def test_unknown_response_api_is_wrong_usage(text: str) -> None:
    with pytest.raises(SystemExit):
        decode.main(["00", "--response", text])


def _packet(client_to_server: bool, sequence: int, flags: int, payload: bytes) -> bytes:
    ports = (50000, 9092) if client_to_server else (9092, 50000)
    tcp = struct.pack(">HHIIBBHHH", *ports, sequence & 0xFFFFFFFF, 0, 5 << 4, flags, 0, 0, 0) + payload
    hosts = (b"\x7f\x00\x00\x01", b"\x7f\x00\x00\x02")
    source, target = hosts if client_to_server else hosts[::-1]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + source + target
    frame = bytes(12) + b"\x08\x00" + ip + tcp
    return struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame


def _capture(*packets: bytes) -> bytes:
    return b"\xd4\xc3\xb2\xa1" + struct.pack("<HHIIII", 2, 4, 0, 0, 65535, 1) + b"".join(packets)


def test_capture_pairs_responses_with_their_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request, response = _frame(REQUEST), _frame(RESPONSE)
    start = 0xFFFFFFF0
    path = tmp_path / "capture.pcap"
    path.write_bytes(
        _capture(
            _packet(True, start, 0x02, b""),
            _packet(False, 99, 0x12, b""),
            _packet(True, start + 1 + 20, 0x10, request[20:]),
            _packet(True, start + 1, 0x10, request[:30]),
            _packet(False, 100, 0x10, response),
        )
    )
    assert decode.main([str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.index("request 5: FETCH v16") < shown.index("response 5: FETCH v16")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in shown


def test_capture_of_other_traffic_is_passed_over() -> None:
    request = _frame(REQUEST)
    ipv6 = b"\x60\0\0\0" + (20 + len(request)).to_bytes(2, "big") + b"\x06\x40" + bytes(15) + b"\1" + bytes(15) + b"\2"
    tcp = struct.pack(">HHIIBBHHH", 50000, 9092, 7, 0, 5 << 4, 0x10, 0, 0, 0) + request
    frames = [
        bytes(12) + b"\x08\x06" + bytes(30),
        bytes(12) + b"\x08\x00" + b"\x45" + bytes(8) + b"\x11" + bytes(40),
        bytes(12) + b"\x81\x00" + b"\0\1\x86\xdd" + ipv6 + tcp,
        bytes(14),
    ]
    packets = [struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame in frames]
    (connection,) = pcap.connections(_capture(*packets))
    assert connection.from_client == request


def test_capture_with_unreadable_requests_goes_on() -> None:
    stream = _frame(b"\x03\xe7" + bytes(10)) + _frame(REQUEST) + b"\xff\xff\xff\xff"
    shown = list(decode.decode_all(_capture(_packet(True, 10, 0x10, stream))))
    assert isinstance(shown[0], DecodeError)
    assert isinstance(shown[1], decode.Decoded)
    assert len(shown) == 2


def _block(kind: int, body: bytes, order: str) -> bytes:
    size = 12 + len(body) + -len(body) % 4
    return struct.pack(order + "II", kind, size) + body + bytes(-len(body) % 4) + struct.pack(order + "I", size)


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng(order: str) -> None:
    request, response = _frame(REQUEST), _frame(RESPONSE)
    packets = [_packet(True, 10, 0x10, request)[16:], _packet(False, 10, 0x10, response)[16:]]
    capture = _block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)
    capture += _block(1, struct.pack(order + "HHI", 1, 0, 0), order) + _block(5, b"statistics", order)
    capture += _block(6, struct.pack(order + "5I", 0, 0, 0, len(packets[0]), len(packets[0])) + packets[0], order)
    capture += _block(3, struct.pack(order + "I", len(packets[1])) + packets[1], order)
    shown = list(decode.decode_all(capture))
    assert [message.kind for message in shown if isinstance(message, decode.Decoded)] == ["request", "response"]


@pytest.mark.parametrize(
    "block",
    [b"\x0a\x0d\x0d\x0a" + bytes(12), _block(6, bytes(40), "<"), _block(1, b"\x09\x00", "<") + _block(3, b"1234", "<")],
)
def test_broken_pcapng(block: bytes) -> None:
    section = _block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1), "<")
    with pytest.raises(DecodeError):
        pcap.connections(section + block)


def test_capture_with_a_gap_ends_there() -> None:
    request = _frame(REQUEST)
    (connection,) = pcap.connections(
        _capture(_packet(True, 10, 0x10, request), _packet(True, 11 + len(request), 0x10, b"lost before me"))
    )
    assert connection.from_client == request
    assert connection.server.port == 9092


@pytest.mark.parametrize(
    "data", [b"", b"\x0a\x0d\x0d\x0a" + bytes(40), _capture()[:10], _capture()[:20] + b"\xff\0\0\0" + bytes(16)]
)
def test_what_is_no_capture_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        pcap.connections(data)


METADATA = bytes.fromhex("000300090000000100026d650002076f72646572730001000000")


def with_length(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def test_frames_with_their_length() -> None:
    one, two = decode.decode_all(with_length(METADATA) * 2)
    assert isinstance(one, decode.Decoded)
    assert one == two == next(decode.decode_all(METADATA))


@pytest.mark.parametrize(
    ("data", "frames", "message"),
    [
        (with_length(METADATA)[:-1], 0, "cut short: its length is 26, and 25 bytes follow"),
        (with_length(METADATA) * 2 + with_length(METADATA)[:9], 2, "cut short: its length is 26, and 5 bytes follow"),
        (with_length(METADATA) + b"\0", 1, "left over after the last frame, and not a frame: 00"),
    ],
)
def test_frames_of_which_the_last_is_cut_short(data: bytes, frames: int, message: str) -> None:
    *decoded, failure = decode.decode_all(data)
    assert [type(it) for it in decoded] == [decode.Decoded] * frames
    assert message in str(failure)
