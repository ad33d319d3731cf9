"""CreateAcls (30): adds entries to the access control lists; each is answered separately.

An entry that exists already is not an error. Without an authorizer each one is SECURITY_DISABLED, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.metadata.acls import Acl, AclOperation, new_acl
from ottla.metadata.features import METADATA_VERSION, NETWORKS_IN_ACLS
from ottla.metastore.errors import MetadataError
from ottla.runtime.errors import kept
from ottla.server.apis.access.describe_acls import NO_AUTHORIZER
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

if TYPE_CHECKING:
    from ottla.server.broker import Broker

API = Api(ApiKey.CREATE_ACLS, on_cluster(AclOperation.ALTER), forwarded=True)


def acl_of(creation: AclCreation, broker: Broker) -> Acl:
    """The entry that is asked for. Raises what `new_acl` raises."""
    return new_acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
        allows_networks=broker.metadata.features.get(METADATA_VERSION, 0) >= NETWORKS_IN_ACLS,
    )


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    if context.access is None:
        return CreateAclsResponse(
            results=[
                AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
                async for _ in context.work.over(request.creations)
            ]
        )
    errors: list[MetadataError | None] = []
    acls: list[Acl] = []
    async for it in context.work.over(request.creations):
        try:
            acls.append(acl_of(it, context.broker))
        except MetadataError as error:
            errors.append(kept(error))
        else:
            errors.append(None)
    try:
        await context.broker.controller.create_acls(acls)
    except MetadataError as error:
        errors = [error if earlier is None else earlier for earlier in errors]
    results = []
    async for failure in context.work.over(errors):
        code, message = outcome(failure)
        # Of what is created Kafka says nothing in a text that is empty, not absent.
        results.append(AclCreationResult(error_code=code, error_message="" if failure is None else message))
    return CreateAclsResponse(results=results)
