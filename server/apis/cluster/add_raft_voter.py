"""AddRaftVoter (80): there is no KRaft quorum here, so it is refused as Kafka does while `kraft.version` is 0.

Kafka's counterparts are KafkaRaftClient.handleAddVoterRequest and AddVoterHandler (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.metadata.acls import AclOperation
from ottla.server.apis.cluster.raft_voters import refusal
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import on_cluster

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.ADD_RAFT_VOTER, on_cluster(AclOperation.ALTER))

_NO_ENDPOINT: Final = (
    "Add voter request didn't include the endpoint (Endpoints(endpoints={})) for the default listener "
    "ListenerName(CONTROLLER)"
)


def handle(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    code, message = refusal("Add", request.cluster_id, request.voter_id, request.voter_directory_id, context)
    if code is ErrorCode.UNSUPPORTED_VERSION and not request.listeners:
        code, message = ErrorCode.INVALID_REQUEST, _NO_ENDPOINT
    return AddRaftVoterResponse(error_code=code, error_message=message)
