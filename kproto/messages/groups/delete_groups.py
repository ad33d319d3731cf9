"""DeleteGroups (API key 42): delete groups with their offsets.

Promises: each group on its own; one with members is NON_EMPTY_GROUP, an unknown one GROUP_ID_NOT_FOUND.

Versions: 1 adds early throttling; 2 is flexible; 3 adds a message to GROUP_DELETION_FAILED (KIP-1331).
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request, api_key=ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+"):
    groups_names: list[str] = array(string, "0+")


class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Response, api_key=ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
