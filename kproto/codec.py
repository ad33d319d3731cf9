"""Parse and build any message in any of its versions.

A message is bytes-like on one side and an instance of its class on the other. Parsing takes the whole body: bytes left
over are an error, except after a request, where Kafka ignores them too. Record batches come out as views of the input;
all else is copied, so that the input may be reused once the records are done with. Malformed input raises DecodeError,
a message that does not fit its version EncodeError, and nothing else does; what is claimed by a length is never
allocated before it is there.

The code for a class and a version is compiled when it is first used and kept (`ottla.kproto.compiler`).
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.compiler.builder import compile_builder
from ottla.kproto.compiler.layout import carries_records
from ottla.kproto.compiler.parser import compile_parser
from ottla.kproto.errors import DecodeError, EncodeError
from ottla.kproto.messages import request_class, response_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.kproto.schema import Message, Request, Response
    from ottla.kproto.types import Buffer as Buffer
    from ottla.kproto.types import Part as Part

M = TypeVar("M", bound="Message")
R = TypeVar("R")
Steps = Generator[None, None, R]
Begun = list[list[Any]]
"""The lists of a message that is being parsed, in the order in which they begin."""
"""Work that stops now and then, and returns its result at the end."""

_MALFORMED = (struct.error, IndexError, UnicodeDecodeError)
_UNFIT = (struct.error, TypeError, AttributeError, ValueError, OverflowError)


def parse_request(api_key: int, version: int, buf: Buffer, pos: int = 0) -> Request:
    """Parse the body of a request, which starts at `pos` (after its header).

    Bytes after it are ignored, as Kafka ignores them: librdkafka's Metadata v13 for all topics has three too many.
    """
    # As `parse_prefix`, but for the calls: it is done for every request.
    run, takes_view, cls = _request_parser(api_key, version)
    data: Any = buf
    if takes_view:
        data = memoryview(buf)
    elif type(buf) is not bytes:
        data = bytes(buf)
    try:
        request: Request = run(data, pos)[0]
    except _MALFORMED as error:
        raise DecodeError(f"{cls.__name__} v{version} is malformed: {error}") from error
    return request


def parse_response(api_key: int, version: int, buf: Buffer, pos: int = 0) -> Response:
    """Parse the body of a response, which starts at `pos` (after its header) and ends with the buffer."""
    return parse(_served_response(api_key, version), version, buf, pos)


def parse(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> M:
    """Parse a message that reaches from `pos` to the end of the buffer."""
    message, end = parse_prefix(cls, version, buf, pos)
    if end != len(buf):
        raise DecodeError(f"{cls.__name__} v{version} ends {len(buf) - end} bytes before its frame does")
    return message


def parse_prefix(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> tuple[M, int]:
    """Parse a message that starts at `pos`; returns it and the position after it."""
    run, takes_view = _parser(cls, version)
    data: Any = buf
    if takes_view:
        data = memoryview(buf)
    elif type(buf) is not bytes:
        data = bytes(buf)
    try:
        parsed: tuple[M, int] = run(data, pos)
    except _MALFORMED as error:
        raise DecodeError(f"{cls.__name__} v{version} is malformed: {error}") from error
    return parsed


def parse_request_in_steps(
    api_key: int, version: int, buf: Buffer, pos: int = 0, begun: Begun | None = None
) -> Steps[Request]:
    """`parse_request` with stops: a generator that yields after each STEP_ELEMENTS elements of arrays and returns it.

    Who drives it may do something else in between, or give up; then the lists in `begun` can be emptied a few elements
    at a time. Each list is appended to it before it is filled.
    """
    request, _ = yield from parse_prefix_in_steps(_served_request(api_key, version), version, buf, pos, begun)
    return request


def parse_prefix_in_steps(
    cls: type[M], version: int, buf: Buffer, pos: int = 0, begun: Begun | None = None
) -> Steps[tuple[M, int]]:
    """`parse_prefix` with stops, as `parse_request_in_steps` has them."""
    begun = [] if begun is None else begun
    try:
        parsed: tuple[M, int] = yield from _parser_in_steps(cls, version)(memoryview(buf), pos, begun)
    except _MALFORMED as error:
        raise DecodeError(f"{cls.__name__} v{version} is malformed: {error}") from error
    return parsed


def build_in_steps(message: Message, version: int) -> Steps[list[bytes]]:
    """`build_parts` with stops, as `parse_request_in_steps` has them. What lies between two stops is one piece.

    Not for messages that carry record batches.
    """
    parts: list[bytes] = []
    pieces: list[Buffer] = []
    for _ in write_in_steps(message, version, pieces.append):
        parts.append(b"".join(pieces))
        pieces.clear()
        yield
    parts.append(b"".join(pieces))
    return parts


def write_in_steps(message: Message, version: int, write: Callable[[Buffer], object]) -> Steps[None]:
    """Hand the pieces that `build_parts` gives to `write`, with stops."""
    cls = type(message)
    try:
        yield from _builder_in_steps(cls, version)(message, write)
    except _UNFIT as error:
        raise EncodeError(f"{cls.__name__} does not fit version {version}: {error}") from error


def prepare(api_key: ApiKey, version: int) -> None:
    """Compile what serving this version takes, instead of at its first use. It may run in any thread."""
    _parser(request_class(api_key), version)
    _builder(response_class(api_key), version)


def prepare_steps(api_key: ApiKey, version: int) -> None:
    """`prepare` for the work in steps."""
    _parser_in_steps(request_class(api_key), version)
    _builder_in_steps(response_class(api_key), version)


def build(message: Message, version: int) -> bytes:
    """The encoded message. Copies record batches once; `build_parts` does not."""
    cls = type(message)
    parts: list[Buffer] = []
    try:
        _builder(cls, version)(message, parts.append)
    except _UNFIT as error:
        raise EncodeError(f"{cls.__name__} does not fit version {version}: {error}") from error
    return b"".join(parts)


def build_parts(message: Message, version: int) -> list[Buffer]:
    """The encoded message in pieces, of which record batches are the message's own buffers."""
    cls = type(message)
    parts: list[Buffer] = []
    try:
        _builder(cls, version)(message, parts.append)
    except _UNFIT as error:
        raise EncodeError(f"{cls.__name__} does not fit version {version}: {error}") from error
    return parts


@cache
def _parser(cls: type[Message], version: int) -> tuple[Callable[..., tuple[Any, int]], bool]:
    if not cls.VERSIONS.includes(version):
        raise DecodeError(f"{cls.__name__} has no version {version}")
    flexible = cls.FLEXIBLE_VERSIONS.includes(version)
    return compile_parser(cls, version, flexible=flexible), carries_records(cls, version)


@cache
def _builder(cls: type[Message], version: int) -> Callable[..., None]:
    if not cls.VERSIONS.includes(version):
        raise EncodeError(f"{cls.__name__} has no version {version}")
    return compile_builder(cls, version, flexible=cls.FLEXIBLE_VERSIONS.includes(version))


@cache
def _parser_in_steps(cls: type[Message], version: int) -> Callable[..., Steps[tuple[Any, int]]]:
    _parser(cls, version)  # raises where there is no such version
    return compile_parser(cls, version, flexible=cls.FLEXIBLE_VERSIONS.includes(version), in_steps=True)


@cache
def _builder_in_steps(cls: type[Message], version: int) -> Callable[..., Steps[None]]:
    _builder(cls, version)
    return compile_builder(cls, version, flexible=cls.FLEXIBLE_VERSIONS.includes(version), in_steps=True)


@cache
def _request_parser(api_key: int, version: int) -> tuple[Callable[..., tuple[Any, int]], bool, type[Request]]:
    cls = _served_request(api_key, version)
    return *_parser(cls, version), cls


@cache
def _served_request(api_key: int, version: int) -> type[Request]:
    return request_class(_served(api_key, version))


@cache
def _served_response(api_key: int, version: int) -> type[Response]:
    return response_class(_served(api_key, version))


def _served(api_key: int, version: int) -> ApiKey:
    try:
        key = ApiKey(api_key)
    except ValueError:
        raise DecodeError(f"there is no API key {api_key}") from None
    if not key.is_valid(version):
        raise DecodeError(f"{key.name} has no version {version}")
    return key
