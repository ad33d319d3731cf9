"""DescribeClientQuotas (48): the quotas of the entities that have all of the components asked for, and in strict mode
no others (KIP-546). `entries` is null only if the request was refused: otherwise the Java client would crash."""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.configs.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.changes.quota_changes import EntityFilter, Match, check_component, select_quotas
from ottla.metadata.errors import InvalidRequestError
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, on_cluster(AclOperation.DESCRIBE_CONFIGS))


async def handle(request: DescribeClientQuotasRequest, context: RequestContext) -> DescribeClientQuotasResponse:
    try:
        filters: list[EntityFilter] = []
        async for component in context.work.over(request.components):
            check_component(component.entity_type, filters)
            filters.append(_filter(component))
        found = select_quotas(context.broker.metadata.quotas, filters, strict=request.strict)
    except MetadataError as error:
        code, message = outcome(error)
        return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=type_, entity_name=name) for type_, name in entity],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            async for entity, quotas in context.work.over(found.items())
        ],
    )


def _filter(component: ComponentData) -> EntityFilter:
    try:
        match = Match(component.match_type)
    except ValueError:
        raise InvalidRequestError(f"Unknown match type {component.match_type}") from None
    if match is Match.EXACT and component.match is None:
        raise InvalidRequestError("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match is not Match.EXACT and component.match is not None:
        raise InvalidRequestError(f"Request specified MATCH_TYPE_{match.name}, but also specified a match string.")
    return EntityFilter(component.entity_type, match, component.match)
