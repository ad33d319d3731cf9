"""BrokerHeartbeat (API key 63): a broker keeps its lease with the controller and learns whether it is
fenced (KIP-631).

Versions: 1 reports log directories that went offline (KIP-858); 2 those that are cordoned.
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, array, boolean, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Request, api_key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: list[UUID] = array(uuid, "1+", tag=0, tagged="1+")
    cordoned_log_dirs: list[UUID] | None = array(uuid, "2+", nullable="2+", tag=1, tagged="2+", default=None)


class BrokerHeartbeatResponse(Response, api_key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = boolean("0+")
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")
