"""Heartbeat (API key 12): a member of a classic group is alive.

Promises: the session is prolonged by the session timeout, and the answer tells the member what to do next:
REBALANCE_IN_PROGRESS to rejoin, UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION to start over, FENCED_INSTANCE_ID
to stop.

Versions: 1 adds throttling; 3 static members (KIP-345); 4 is flexible.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, string


class HeartbeatRequest(Request, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
