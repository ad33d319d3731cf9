"""ListGroups (API key 16)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """The request of ListGroups."""

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Response, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """The answer to ListGroups."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")
