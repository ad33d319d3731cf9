"""Heartbeat (12): a classic member prolongs its session, and is told with REBALANCE_IN_PROGRESS to rejoin."""

from ottla.coordinator.errors import CoordinatorError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Named, Rule

API = Api(ApiKey.HEARTBEAT, Rule([Named(AclOperation.READ, AclResource.GROUP, "group_id")]))


def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    try:
        context.broker.group_coordinator.classic_groups.heartbeat(
            request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id,
        )
    except CoordinatorError as error:
        return HeartbeatResponse(error_code=error_code(error))
    return HeartbeatResponse()
