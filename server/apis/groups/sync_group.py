"""SyncGroup (14): the leader hands in the assignment, everyone gets theirs once it is committed to the log.

- From version 5 the member says which protocol it assumes; another than the group's, or none, is
  INCONSISTENT_GROUP_PROTOCOL.
"""

from ottla.coordinator.errors import CoordinatorError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Named, Rule

API = Api(ApiKey.SYNC_GROUP, Rule([Named(AclOperation.READ, AclResource.GROUP, "group_id")]), may_wait=True)


async def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    if context.header.api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        result = await context.broker.group_coordinator.classic_groups.sync(
            request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={
                each.member_id: bytes(each.assignment) async for each in context.work.over(request.assignments)
            },
        )
    except CoordinatorError as error:
        return SyncGroupResponse(error_code=error_code(error))
    return SyncGroupResponse(
        protocol_type=result.protocol_type, protocol_name=result.protocol_name, assignment=result.assignment
    )
