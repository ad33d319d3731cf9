"""DescribeGroups (API key 15): state and members of classic groups.

Promises: per group its state, protocol and members; metadata and assignments are filled only while the
group is Stable. Up to version 5 an unknown group is answered as Dead without error, from 6 on as
GROUP_ID_NOT_FOUND with a message (KIP-1043). A group that only stores offsets is Empty with an empty
protocol.

Versions: 1 adds throttling; 3 authorized operations; 4 static members' ids; 5 is flexible; 6 the error
message.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(Request, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    groups: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = bytes_("0+")
    member_assignment: bytes = bytes_("0+")


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Response, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
