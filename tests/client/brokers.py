"""The other side of a connection, as bytes: what a broker would answer."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.kproto import codec, framing, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.cluster.api_versions import ApiVersion, ApiVersionsResponse
from ottla.kproto.messages.groups.heartbeat import HeartbeatResponse
from ottla.kproto.schema import Request, Response
from ottla.kproto.versions import VersionRange

SERVED = {key: key.valid_versions for key in ApiKey}


class Received:
    """A request as the broker got it."""

    def __init__(self, frame: bytes) -> None:
        self.header, body_start = headers.parse_request_header(frame)
        self.key = ApiKey(self.header.api_key)
        self.version = self.header.api_version
        self.request: Request = codec.parse_request(self.key, self.version, frame, body_start)


class BrokerSide:
    """Cuts what a client sends into requests."""

    def __init__(self) -> None:
        self._frames = framing.FrameParser(1 << 24)

    def feed(self, data: Iterable[bytes | bytearray | memoryview]) -> list[Received]:
        return [Received(bytes(frame)) for frame in self._frames.feed(b"".join(data))]


def answer(received: Received, response: Response, *, version: int | None = None) -> bytes:
    """The bytes of an answer, in the request's version or another one."""
    used = received.version if version is None else version
    head = headers.build_response_header(received.key, used, received.header.correlation_id)
    frame = head + codec.build(response, used)
    return framing.frame_prefix(len(frame)) + frame


def versions(received: Received, served: dict[ApiKey, VersionRange] | None = None) -> bytes:
    """The answer to ApiVersions."""
    keys = (SERVED if served is None else served).items()
    listed = [ApiVersion(api_key=key, min_version=range_.lowest, max_version=range_.highest) for key, range_ in keys]
    return answer(received, ApiVersionsResponse(api_keys=listed))


def beat(received: Received, throttle_time_ms: int = 0) -> bytes:
    """The answer to a heartbeat, which tests tell from others by its throttle time."""
    return answer(received, HeartbeatResponse(throttle_time_ms=throttle_time_ms))
