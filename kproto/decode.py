"""Captured requests and responses, read and shown: the `ottla decode` command, and the functions behind it.

Input is a frame, or several frames one after another with their length prefixes, as hexadecimal text, as a binary
file, or as a packet capture of whole connections. A response does not say what it answers: in a capture its request
tells, else the caller must (`--response FETCH:16`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.kproto import codec, pcap, reference
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError, ProtocolError
from ottla.kproto.framing import PREFIX_SIZE
from ottla.kproto.headers import parse_request_header, parse_response_header
from ottla.kproto.messages import request_class, response_class
from ottla.kproto.rendering import render, to_json
from ottla.kproto.schema import Request, Response

SEPARATORS: Final = b" \t\r\n:-,"
"""What may stand between the digits of hexadecimal input."""

_MAX_CUT_FRAME_BYTES: Final = 1 << 16
"""Four bytes up to this may be the length of a frame that is cut short: only Produce has an API key as low."""


class Decoded(NamedTuple):
    """One request or response with its header."""

    kind: str
    api_key: ApiKey
    api_version: int
    correlation_id: int
    client_id: str | None
    body: Request | Response

    @property
    def title(self) -> str:
        client = f" from {self.client_id!r}" if self.client_id is not None else ""
        return f"{self.kind} {self.correlation_id}: {self.api_key.name} v{self.api_version}{client}"

    def text(self, *, with_records: bool = False) -> str:
        """The message as indented text."""
        body = render(self.body, self.api_version, with_records=with_records)
        return self.title + "".join(f"\n  {line}" for line in body.splitlines())

    def json(self) -> dict[str, Any]:
        """The message as what `json.dumps` takes."""
        return {
            "kind": self.kind,
            "api_key": self.api_key.name,
            "api_version": self.api_version,
            "correlation_id": self.correlation_id,
            "client_id": self.client_id,
            "body": to_json(self.body),
        }


def decode_request(frame: bytes | memoryview) -> Decoded:
    """Read a request without its length prefix. Raises DecodeError."""
    header, pos = parse_request_header(frame)
    key = ApiKey(header.api_key)
    try:
        body = codec.parse_request(key, header.api_version, frame, pos)
    except DecodeError:
        # The reference is slow, but says at which field the bytes stop making sense.
        reference.parse(request_class(key), header.api_version, frame[pos:])
        raise
    return Decoded("request", key, header.api_version, header.correlation_id, header.client_id, body)


def decode_response(frame: bytes | memoryview, api_key: ApiKey, api_version: int) -> Decoded:
    """Read the response, without its length prefix, to a request of that key and version. Raises DecodeError."""
    header, pos = parse_response_header(api_key, api_version, frame)
    try:
        body = codec.parse_response(api_key, api_version, frame, pos)
    except DecodeError:
        reference.parse(response_class(api_key), api_version, frame[pos:])
        raise
    return Decoded("response", api_key, api_version, header.correlation_id, None, body)


def split_frames(data: bytes) -> list[bytes]:
    """The frames in a stream; data that is not exactly a row of frames is taken for one without its prefix."""
    frames = []
    pos = 0
    while pos + PREFIX_SIZE <= len(data):
        size = int.from_bytes(data[pos : pos + PREFIX_SIZE], "big", signed=True)
        pos += PREFIX_SIZE
        if not 0 <= size <= len(data) - pos:
            return [data]
        frames.append(data[pos : pos + size])
        pos += size
    return frames if frames and pos == len(data) else [data]


def decode_connection(connection: pcap.Connection) -> Iterator[Decoded | ProtocolError]:
    """The requests of a captured connection, each followed by its response where there is one."""
    responses = {frame[:4]: frame for frame in _whole_frames(connection.from_server)}
    for frame in _whole_frames(connection.from_client):
        try:
            request = decode_request(frame)
            yield request
            response = responses.pop(request.correlation_id.to_bytes(4, "big", signed=True), None)
            if response is not None:
                yield decode_response(response, request.api_key, request.api_version)
        except ProtocolError as error:
            yield error


def _whole_frames(stream: bytes) -> Iterator[bytes]:
    pos = 0
    while pos + PREFIX_SIZE <= len(stream):
        size = int.from_bytes(stream[pos : pos + PREFIX_SIZE], "big", signed=True)
        end = pos + PREFIX_SIZE + size
        if size < 0 or end > len(stream):
            return
        yield stream[pos + PREFIX_SIZE : end]
        pos = end


def decode_all(data: bytes, response_to: tuple[ApiKey, int] | None = None) -> Iterator[Decoded | ProtocolError]:
    """Read a capture, or frames: requests, or responses to requests of the given key and version."""
    if pcap.is_capture(data):
        for connection in pcap.connections(data):
            yield from decode_connection(connection)
        return
    frames = split_frames(data)
    for frame in frames:
        try:
            yield _decode_frame(frame, response_to)
        except ProtocolError as error:
            if frames == [data]:
                yield from _decode_cut(data, response_to, error)
            else:
                yield error


def _decode_frame(frame: bytes, response_to: tuple[ApiKey, int] | None) -> Decoded:
    return decode_request(frame) if response_to is None else decode_response(frame, *response_to)


def _decode_cut(
    data: bytes, response_to: tuple[ApiKey, int] | None, failure: ProtocolError
) -> Iterator[Decoded | ProtocolError]:
    """What is not a frame without its length prefix may be frames with theirs, the last of which is cut short."""
    whole = list(_whole_frames(data))
    try:
        decoded = [_decode_frame(frame, response_to) for frame in whole]
    except ProtocolError:
        decoded = []
    position = sum(PREFIX_SIZE + len(frame) for frame in whole) if decoded else 0
    size = int.from_bytes(data[position : position + PREFIX_SIZE], "big", signed=True)
    behind = len(data) - position - PREFIX_SIZE
    yield from decoded
    if 0 <= behind < size <= _MAX_CUT_FRAME_BYTES:
        yield DecodeError(f"the frame is cut short: its length is {size}, and {behind} bytes follow")
    elif decoded:
        yield DecodeError(f"left over after the last frame, and not a frame: {data[position:][:16].hex()}")
    else:
        yield failure


def read_input(source: str) -> bytes:
    """Bytes from hexadecimal text, from a file that holds it or the bytes themselves, or from standard input (`-`)."""
    if source == "-":
        data = sys.stdin.buffer.read()
    elif os.path.isfile(source):
        data = Path(source).read_bytes()
    else:
        data = source.encode()
        if _from_hex(data) is None:
            raise DecodeError(f"{source!r} is neither a file nor hexadecimal text")
    if not data:
        raise DecodeError("there is nothing to decode: the input is empty")
    return _from_hex(data) or data


def _from_hex(data: bytes) -> bytes | None:
    digits = data.translate(None, SEPARATORS).removeprefix(b"0x")
    try:
        return bytes.fromhex(digits.decode("ascii")) or None
    except ValueError:
        return None


def _response_to(text: str) -> tuple[ApiKey, int]:
    name, _, version = text.partition(":")
    try:
        key = ApiKey(int(name)) if name.isdigit() else ApiKey[name.upper().replace("-", "_")]
        return key, int(version)
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(f"{text!r} is not API:VERSION, such as FETCH:16 or 1:16") from None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `ottla decode`."""
    parser.add_argument(
        "input",
        nargs="?",
        default="-",
        help="hexadecimal text, a file (bytes, hex, pcap, pcapng, a recording), or -; frames with or without a length",
    )
    parser.add_argument(
        "--response",
        type=_response_to,
        metavar="API:VERSION",
        help="the input is responses to that API, such as FETCH:16",
    )
    parser.add_argument("--records", action="store_true", help="show the records in batches, not only the batches")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each message")


def run(arguments: argparse.Namespace) -> int:
    """Print what the input holds; 1 if any of it could not be read."""
    failed = False
    try:
        for decoded in decode_all(read_input(arguments.input), arguments.response):
            if isinstance(decoded, ProtocolError):
                failed = True
                sys.stderr.write(f"unreadable: {decoded}\n")
            elif arguments.json:
                sys.stdout.write(json.dumps(decoded.json()) + "\n")
            else:
                sys.stdout.write(decoded.text(with_records=arguments.records) + "\n")
    except ProtocolError as error:
        failed = True
        sys.stderr.write(f"unreadable: {error}\n")
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command on its own."""
    parser = argparse.ArgumentParser(prog="ottla decode", description="Show bytes of the Kafka protocol as messages.")
    configure(parser)
    return run(parser.parse_args(argv))
