"""DeleteAcls (31): removes the entries that match the filters, and answers with them.

Without an authorizer each filter is answered with SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.metadata.acls import Acl, AclFilter, AclOperation
from ottla.metastore.errors import MetadataError
from ottla.runtime.errors import kept
from ottla.server.apis.access.describe_acls import NO_AUTHORIZER
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.DELETE_ACLS, on_cluster(AclOperation.ALTER), forwarded=True)


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    if context.access is None:
        return DeleteAclsResponse(
            filter_results=[
                DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
                async for _ in context.work.over(request.filters)
            ]
        )
    results: list[Sequence[Acl] | MetadataError] = []
    filters = []
    async for it in context.work.over(request.filters):
        asked = AclFilter(
            it.resource_type_filter,
            it.resource_name_filter,
            it.pattern_type_filter,
            it.principal_filter,
            it.host_filter,
            it.operation,
            it.permission_type,
        )
        try:
            asked.check()
        except MetadataError as error:
            results.append(kept(error))
        else:
            results.append([])
            filters.append(asked)
    try:
        found = iter(await context.broker.controller.delete_acls(filters))
    except MetadataError as error:
        results = [error if isinstance(it, list) else it for it in results]
    else:
        results = [next(found) if isinstance(it, list) else it for it in results]
    return DeleteAclsResponse(filter_results=[await _result(it, context) for it in results])


async def _result(deleted: Sequence[Acl] | MetadataError, context: RequestContext) -> DeleteAclsFilterResult:
    if isinstance(deleted, MetadataError):
        code, message = outcome(deleted)
        return DeleteAclsFilterResult(error_code=code, error_message=message)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            async for acl in context.work.over(deleted)
        ],
    )
