"""ListGroups (16): the groups that this broker coordinates, filtered by state (KIP-518) and type (KIP-848).

Both filters ignore case; an empty one lets everything through.
"""

from ottla.kproto.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.server.apis.context import RequestContext
from ottla.server.apis.errors import error_code
from ottla.server.coordinator.errors import CoordinatorError


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    states = {state.casefold() for state in request.states_filter}
    types = {group_type.casefold() for group_type in request.types_filter}
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
            async for group in context.work.over(listings)
            if (not states or group.state.casefold() in states) and (not types or group.group_type.casefold() in types)
        ]
    )
