"""DeleteGroups (API key 42)."""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """The request of DeleteGroups."""

    groups_names: list[str] = array(string, "0+")


class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+")


class DeleteGroupsResponse(Response, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """The answer to DeleteGroups."""

    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
