"""UnregisterBroker (API key 64)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, string


class UnregisterBrokerRequest(Request, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"):
    """The request of UnregisterBroker."""

    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Response, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"):
    """The answer to UnregisterBroker."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
