"""RemoveRaftVoter (81): there is no KRaft quorum here, so it is refused as Kafka does while `kraft.version` is 0.

Kafka's counterparts are KafkaRaftClient.handleRemoveVoterRequest and RemoveVoterHandler (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.cluster.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.metadata.acls import AclOperation
from ottla.server.apis.cluster.raft_voters import refusal
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import on_cluster

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.REMOVE_RAFT_VOTER, on_cluster(AclOperation.ALTER))


def handle(request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
    code, message = refusal("Remove", request.cluster_id, request.voter_id, request.voter_directory_id, context)
    return RemoveRaftVoterResponse(error_code=code, error_message=message)
