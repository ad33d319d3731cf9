"""RemoveRaftVoter (API key 81): remove a controller from the voters of the metadata quorum (KIP-853)."""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, int16, int32, string, uuid


class RemoveRaftVoterRequest(Request, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: UUID = uuid("0+")


class RemoveRaftVoterResponse(Response, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
