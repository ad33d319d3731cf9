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

#: What KRaft's controllers call the listener over which they reach each other, if nothing else is configured.
_DEFAULT_LISTENER: Final = "CONTROLLER"


def handle(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    code, message = refusal("Add", request.cluster_id, request.voter_id, request.voter_directory_id, context)
    names = [each.name.upper() for each in request.listeners]
    if code is ErrorCode.UNSUPPORTED_VERSION and _DEFAULT_LISTENER not in names:
        listed = ", ".join(f"ListenerName({name})" for name in names)
        code = ErrorCode.INVALID_REQUEST
        message = (
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{listed}}})) for the default "
            f"listener ListenerName({_DEFAULT_LISTENER})"
        )
    return AddRaftVoterResponse(error_code=code, error_message=message)
