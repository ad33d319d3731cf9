"""JoinGroup (API key 11): become a member of a classic group, or rejoin it for the next generation.

Promises: the answer waits until all members have joined or the rebalance timeout has passed; then one
member is told to be leader and gets everybody's metadata, and all get the same generation and protocol,
which every member supports. The rebalance timeout is the session timeout in version 0.

Versions: 1 adds the rebalance timeout; 4 answers an empty member id with MEMBER_ID_REQUIRED and an id to
join with (KIP-394); 5 adds static members (KIP-345); 6 is flexible; 7 answers the protocol type (KIP-559),
and the protocol name may be null; 8 carries the reason (KIP-800); 9 adds `skip_assignment` (KIP-814).

What brokers get wrong: versions 0 and 1 must stay, 4.0.1 brought them back. A static member that restarts
keeps its assignment without a rebalance; when it is the leader, version 9 tells it to skip the assignment.
Rebalances at the same time neither forget members nor cause one more rebalance.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, boolean, bytes_, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = bytes_("0+")


class JoinGroupRequest(Request, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = bytes_("0+")


class JoinGroupResponse(Response, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")
