"""ListGroups (API key 16): the groups which this broker coordinates.

Promises: only this broker's groups, so a client asks every broker; a group appears once.

Versions: 1 adds throttling; 3 is flexible; 4 filters by state and answers it (KIP-518); 5 filters by group
type and answers it: classic, consumer, share, streams (KIP-848).
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Response, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")
