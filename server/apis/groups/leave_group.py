"""LeaveGroup (13): members leave at once instead of letting their sessions end.

- Before version 3 one member leaves and its error is the answer's. From version 3 several leave, by member id or by
  static instance id (KIP-345), each with an error of its own; what concerns the whole group stays on top.
- An administrator removes members of the consumer protocol (KIP-848) with it, too.
"""

from ottla.coordinator.errors import CoordinatorError, FencedInstanceIdError, UnknownMemberIdError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Named, Rule

API = Api(ApiKey.LEAVE_GROUP, Rule([Named(AclOperation.READ, AclResource.GROUP, "group_id")]))


async def handle(request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    batched = context.header.api_version >= 3
    members = request.members if batched else [MemberIdentity(member_id=request.member_id)]
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    left: list[MemberResponse] = []
    async for member in context.work.over(members):
        code = ErrorCode.NONE
        try:
            await context.broker.group_coordinator.classic_groups.leave(
                request.group_id, member.member_id, member.group_instance_id
            )
        except (UnknownMemberIdError, FencedInstanceIdError) as error:
            code = error_code(error)
        except CoordinatorError as error:
            return LeaveGroupResponse(error_code=error_code(error))
        left.append(
            MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code)
        )
    if batched:
        return LeaveGroupResponse(members=left)
    return LeaveGroupResponse(error_code=left[0].error_code)
