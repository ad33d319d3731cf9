"""UnregisterController (API key 94): forget a controller of a KRaft quorum that has left it (KIP-1312)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, string


class UnregisterControllerRequest(Request, api_key=ApiKey.UNREGISTER_CONTROLLER, versions="0", flexible="0+"):
    controller_id: int = int32("0+")


class UnregisterControllerResponse(Response, api_key=ApiKey.UNREGISTER_CONTROLLER, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
