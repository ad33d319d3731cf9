"""A whole request and a whole answer are what their parts are."""

from __future__ import annotations

import pytest

from ottla.kproto import codec, headers
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import DecodeError
from ottla.kproto.frames import build_request_frame, parse_response_frame
from ottla.kproto.framing import FrameParser
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse


@pytest.mark.parametrize("version", [0, 4])
def test_a_request(version: int) -> None:
    request = HeartbeatRequest(group_id="g", member_id="m", generation_id=3)
    (frame,) = FrameParser(1000).feed(build_request_frame(request, version, 7, "me"))
    header, body_start = headers.parse_request_header(frame)
    assert (header.api_version, header.correlation_id, header.client_id) == (version, 7, "me")
    assert codec.parse_request(ApiKey.HEARTBEAT, version, frame, body_start) == request


@pytest.mark.parametrize("version", [0, 4])
def test_an_answer(version: int) -> None:
    response = HeartbeatResponse(error_code=27)
    frame = headers.build_response_header(ApiKey.HEARTBEAT, version, 7) + codec.build(response, version)
    assert parse_response_frame(ApiKey.HEARTBEAT, version, frame) == (7, response)
    with pytest.raises(DecodeError):
        parse_response_frame(ApiKey.HEARTBEAT, version, frame + b"\0")
