"""CreateAcls (30): there is no authorizer: each entry is answered SECURITY_DISABLED, as Kafka does it then."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.server.apis.context import RequestContext
from ottla.server.apis.describe_acls import NO_AUTHORIZER


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            async for _ in context.work.over(request.creations)
        ]
    )
