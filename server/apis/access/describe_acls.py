"""DescribeAcls (29): the entries that match a filter, grouped by resource.

Without an authorizer there is nothing to describe: SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from itertools import groupby

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.metadata.acls import AclFilter, AclOperation
from ottla.metadata.errors import InvalidRequestError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.DESCRIBE_ACLS, on_cluster(AclOperation.DESCRIBE))

NO_AUTHORIZER = "No Authorizer is configured."


async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    if context.access is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    asked = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    try:
        asked.check()
    except InvalidRequestError as error:
        code, message = outcome(error)
        return DescribeAclsResponse(error_code=code, error_message=message)
    found = [acl async for acl in context.work.over(context.broker.metadata.acls) if asked.accepts(acl)]
    in_order = await context.work.sorted(found)
    context.work.leave(found)
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResource(
                resource_type=resource,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    async for acl in context.work.over(acls)
                ],
            )
            for (resource, name, pattern), acls in groupby(in_order, key=lambda acl: acl[:3])
        ]
    )
