"""Heartbeat (API key 12)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, string


class HeartbeatRequest(Request, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """The request of Heartbeat."""

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """The answer to Heartbeat."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
