"""DescribeGroups (15): state, members and assignments of classic groups.

- A group that does not exist is Dead; from version 6 that comes with GROUP_ID_NOT_FOUND and a message (KIP-1043).
- Metadata and assignments are shown of a stable group only.
"""

from typing import Final

from ottla.coordinator.errors import CoordinatorError, GroupIdNotFoundError
from ottla.coordinator.group.classic.group import ClassicGroup, ClassicState
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.rules import Each, Rule, itself

API = Api(ApiKey.DESCRIBE_GROUPS, Rule(each=Each(AclOperation.DESCRIBE, "groups", itself(AclResource.GROUP))))

# READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: what everybody may do with a group without an authorizer.
ALL_GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


async def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    described = [await _describe(group_id, context) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = group_operations(group.group_id, context)
    return DescribeGroupsResponse(groups=described)


def group_operations(group_id: str, context: RequestContext) -> int:
    """The bits of the operations that the sender may do on a group."""
    if context.access is None:
        return ALL_GROUP_OPERATIONS
    return context.access.operations(ALL_GROUP_OPERATIONS, AclResource.GROUP, group_id)


async def _describe(group_id: str, context: RequestContext) -> DescribedGroup:
    await context.work.charge()
    try:
        group: ClassicGroup = context.broker.group_coordinator.classic_groups.describe(group_id)
    except GroupIdNotFoundError as error:
        absent = DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD.value)
        if context.header.api_version >= 6:
            absent.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            absent.error_message = error_message(error)
        return absent
    except CoordinatorError as error:
        return DescribedGroup(group_id=group_id, error_code=error_code(error))
    await context.work.charge(len(group.members))
    stable = group.is_in(ClassicState.STABLE)
    protocol = group.protocol_name or "" if stable else ""
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
