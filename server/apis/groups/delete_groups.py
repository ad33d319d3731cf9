"""DeleteGroups (42): remove empty groups with their offsets, each with an answer of its own."""

from ottla.coordinator.errors import CoordinatorError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Each, Rule, itself

API = Api(ApiKey.DELETE_GROUPS, Rule(each=Each(AclOperation.DELETE, "groups_names", itself(AclResource.GROUP))))


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    results: list[DeletableGroupResult] = []
    async for group_id in context.work.over(dict.fromkeys(request.groups_names)):
        code = ErrorCode.NONE
        try:
            await context.broker.group_coordinator.delete_group(group_id)
        except CoordinatorError as error:
            code = error_code(error)
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=results)
