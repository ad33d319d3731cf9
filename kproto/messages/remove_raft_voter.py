"""RemoveRaftVoter (API key 81)."""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, string, uuid


class RemoveRaftVoterRequest(Request, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"):
    """The request of RemoveRaftVoter."""

    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")


class RemoveRaftVoterResponse(Response, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"):
    """The answer to RemoveRaftVoter."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
