"""DeleteAcls (31): there is no authorizer: each filter is answered SECURITY_DISABLED, as Kafka does it then."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ottla.server.apis.context import RequestContext
from ottla.server.apis.describe_acls import NO_AUTHORIZER


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            async for _ in context.work.over(request.filters)
        ]
    )
