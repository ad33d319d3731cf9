"""The answers that name brokers, with their addresses replaced by those that lead through the proxy.

| API | names |
|---|---|
| Metadata, DescribeCluster | all brokers |
| FindCoordinator | the coordinators |
| Produce 10+, Fetch 16+, ShareFetch, ShareAcknowledge | new leaders (KIP-951) |

DescribeQuorum names controllers, which are not proxied: it stays as it is, as do the addresses of clients in
descriptions of groups. Metadata's topics are not read: their bytes go on as they came.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.compiler.runtime import read_uvarint, uvarint
from ottla.kproto.errors import DecodeError
from ottla.proxy import endpoints
from ottla.proxy.heads import skip_tags
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.kproto.schema import Response
    from ottla.kproto.types import Buffer

Localize = Callable[[int, str, int], tuple[str, int]]
"""The address through the proxy of the broker with this id, host and port."""


class Addresses(Protocol):
    """How one client reaches the brokers."""

    def localize(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """The address through the proxy of the broker with this id, host and port."""


NAMING: Final = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.FIND_COORDINATOR,
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    }
)
"""The APIs whose answers name brokers, in some version."""

MAX_WALKED_BYTES: Final = 64 * 1024
"""How many bytes are looked through in one go."""
_CONTROLLERS: Final = 2
_PORT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")


def names_brokers(key: ApiKey, version: int) -> bool:
    """Whether the answer to a request of this version may name brokers."""
    return key in NAMING and version >= endpoints.FIRST_VERSIONS.get(key, 0)


def may_pass(key: ApiKey, version: int, frame: Buffer, body_start: int) -> bool:
    """Whether an answer is small and certainly names no broker, so that it can be sent on at once."""
    if key not in endpoints.FIRST_VERSIONS or len(frame) > MAX_WALKED_BYTES:
        return False
    walk = endpoints.walk(key, version, frame, body_start)
    time_slice = TimeSlice()
    while not time_slice.is_over:
        try:
            next(walk)
        except StopIteration as end:
            return not end.value
    return False


async def rewrite(
    key: ApiKey, version: int, frame: Buffer, body_start: int, localize: Localize
) -> list[Buffer] | None:  # fmt: skip
    """The frame with the proxy's addresses, in pieces; None if it stays unchanged. Raises DecodeError if it is not an
    answer.
    """
    if key is ApiKey.METADATA:
        return _metadata(version, frame, body_start, localize)
    if key in endpoints.FIRST_VERSIONS and not await _has_endpoints(key, version, frame, body_start):
        return None
    response = codec.parse_response(key, version, frame, body_start)
    rewrite_message(response, localize)
    return [memoryview(frame)[:body_start], *codec.build_parts(response, version)]


def rewrite_message(response: Response, localize: Localize) -> None:
    """Put the proxy's addresses into a response that is one of these, or leave it alone."""
    if response.API_KEY in NAMING:
        message: Any = response
        for named in _named(message):
            node_id = named.broker_id if response.API_KEY is ApiKey.DESCRIBE_CLUSTER else named.node_id
            if node_id >= 0 and named.host:
                named.host, named.port = localize(node_id, named.host, named.port)


def _named(response: Any) -> list[Any]:
    """The parts of a response with a host and a port."""
    match response.API_KEY:
        case ApiKey.METADATA:
            return list(response.brokers)
        case ApiKey.DESCRIBE_CLUSTER:
            return [] if response.endpoint_type == _CONTROLLERS else list(response.brokers)
        case ApiKey.FIND_COORDINATOR:
            return [response, *response.coordinators]
        case _:
            return list(response.node_endpoints)


async def _has_endpoints(key: ApiKey, version: int, frame: Buffer, body_start: int) -> bool:
    walk = endpoints.walk(key, version, frame, body_start)
    time_slice = TimeSlice()
    while True:
        try:
            next(walk)
        except StopIteration as end:
            return bool(end.value)
        await time_slice.maybe_yield()


def _metadata(version: int, frame: Buffer, pos: int, localize: Localize) -> list[Buffer]:
    """Read the brokers, which come first, and put other hosts and ports between the bytes around them."""
    view = memoryview(frame)
    flexible = ApiKey.METADATA.is_flexible(version)
    pos += 4 if version >= 3 else 0  # the throttle time
    parts: list[Buffer] = []
    kept = 0
    try:
        if flexible:
            count, pos = read_uvarint(view, pos)
            count -= 1
        else:
            (count,) = _PORT.unpack_from(view, pos)
            pos += _PORT.size
        for _ in range(count):
            (node_id,) = _PORT.unpack_from(view, pos)
            host_start = pos + _PORT.size
            host, pos = _read_string(view, host_start, flexible=flexible)
            (port,) = _PORT.unpack_from(view, pos)
            pos += _PORT.size
            new_host, new_port = localize(node_id, host or "", port)
            parts += [view[kept:host_start], _string(new_host, flexible=flexible) + _PORT.pack(new_port)]
            kept = pos
            if version >= 1:
                _, pos = _read_string(view, pos, flexible=flexible)  # the rack
            if flexible:
                pos = skip_tags(view, pos)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"the METADATA response is malformed: {error}") from error
    parts.append(view[kept:])
    return parts


def _read_string(view: memoryview, pos: int, *, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        size, pos = read_uvarint(view, pos)
        size -= 1
    else:
        (size,) = _LENGTH.unpack_from(view, pos)
        pos += _LENGTH.size
    if size < 0:
        return None, pos
    if size > len(view) - pos:
        raise IndexError(f"a string of {size} bytes")
    return str(view[pos : pos + size], "utf-8"), pos + size


def _string(text: str, *, flexible: bool) -> bytes:
    encoded = text.encode()
    return (uvarint(len(encoded) + 1) if flexible else _LENGTH.pack(len(encoded))) + encoded
