"""JoinGroup (11): join a classic group, or rejoin it, and learn the next generation.

- From version 4 a member without an id and without a static instance is given one with MEMBER_ID_REQUIRED and joins
  again with it (KIP-394). Version 0 has no rebalance timeout: its session timeout stands for it.
- The leader alone gets the members. From version 9 it may be told to skip the assignment (KIP-814).
- An error names the member id that the request came with, or none where the group is no classic one;
  `protocol_name` is null from version 7, empty before.
"""

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.classic.member import JoinResult, Protocol
from ottla.coordinator.group.classic.protocol import JoinRequest
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.results import may_describe
from ottla.server.apis.rules import Named, Rule

API = Api(ApiKey.JOIN_GROUP, Rule([Named(AclOperation.READ, AclResource.GROUP, "group_id")]), may_wait=True)


async def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    version = context.header.api_version
    try:
        result = await context.broker.group_coordinator.classic_groups.join(
            request.group_id, await _join_request(request, context)
        )
    except CoordinatorError as error:
        return JoinGroupResponse(
            error_code=error_code(error),
            member_id=request.member_id if error.member_id is None else error.member_id,
            protocol_name=None if version >= 7 else "",
        )
    return _response(result, version)


async def _join_request(request: JoinGroupRequest, context: RequestContext) -> JoinRequest:
    version = context.header.api_version
    rebalance_timeout_ms = request.rebalance_timeout_ms
    return JoinRequest(
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=context.header.client_id or "",
        client_host=context.client_host,
        rebalance_timeout_ms=request.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=[
            Protocol(protocol.name, bytes(protocol.metadata)) async for protocol in context.work.over(request.protocols)
        ],
        known_member_id_required=version >= 4 and request.group_instance_id is None,
        supports_skipping_assignment=version >= 9,
        may_describe=may_describe(context.access),
    )


def _response(result: JoinResult, version: int) -> JoinGroupResponse:
    name = result.protocol_name
    return JoinGroupResponse(
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=name if name is not None or version >= 7 else "",
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(name or ""),
            )
            for member in result.members
        ],
    )
