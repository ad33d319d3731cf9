"""ListGroups (16): the groups that this broker coordinates, filtered by state (KIP-518) and type (KIP-848).

Both filters ignore case; an empty one lets everything through.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.streams.group import StreamsGroupState
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.groups.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Left, Rule

API = Api(ApiKey.LIST_GROUPS, Rule(left=Left("groups", AclResource.GROUP, "group_id", unless=AclOperation.DESCRIBE)))

#: What the states of groups are called in filters, where that is another name.
_IN_FILTERS: Final = {StreamsGroupState.NOT_READY.value: "not_ready"}


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    work = context.work
    states = {state.casefold() async for state in work.over(request.states_filter, counts=False)}
    types = {group_type.casefold() async for group_type in work.over(request.types_filter, counts=False)}
    try:
        listings = context.broker.group_coordinator.list_groups()
    except CoordinatorError as error:
        return ListGroupsResponse(error_code=error_code(error))
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            async for group in work.over(listings)
            if not states or _IN_FILTERS.get(group.state, group.state.casefold()) in states
            if not types or group.group_type.casefold() in types
        ]
    )
