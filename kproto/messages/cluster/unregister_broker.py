"""UnregisterBroker (API key 64): remove a broker that will not come back (KIP-631).

Promises: it is gone from the cluster's metadata; a broker that was never there is BROKER_ID_NOT_REGISTERED.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, string


class UnregisterBrokerRequest(Request, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"):
    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Response, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
