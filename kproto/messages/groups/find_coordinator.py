"""FindCoordinator (API key 10): which broker coordinates a group, a transactional id or a share partition.

Promises: the broker that leads the partition of the internal topic which the key hashes to; the topic is
created when it does not exist yet, and COORDINATOR_NOT_AVAILABLE is answered until it has a leader.

Versions: 0 knows groups only; 1 adds the key type (0 group, 1 transaction) and an error message; 3 is
flexible; 4 takes many keys and answers each on its own (KIP-699), so that versions to 3 use the flat fields
and later ones `coordinators`; 5 permits TRANSACTION_ABORTABLE; 6 adds key type 2, for share state, with
keys of the form group:topic id:partition (KIP-932).
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Request, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Response, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
