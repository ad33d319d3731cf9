"""DescribeAcls (29): without an authorizer there is nothing to describe: SECURITY_DISABLED, as Kafka has it then."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.server.apis.context import RequestContext

NO_AUTHORIZER = "No Authorizer is configured."


async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
