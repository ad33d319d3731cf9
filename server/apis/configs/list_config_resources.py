"""ListConfigResources (74): which resources have configs that may be described (KIP-1142).

Version 0 lists client metrics subscriptions only. From version 1 the asked types, or all of them if none is asked for;
a type that is unknown is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.image import MetadataImage, ResourceType
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.LIST_CONFIG_RESOURCES, on_cluster(AclOperation.DESCRIBE_CONFIGS))


async def handle(request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    asked: Iterable[int] = request.resource_types or list(ResourceType)
    if context.header.api_version == 0:
        asked = [ResourceType.CLIENT_METRICS]
    try:
        types = [ResourceType(number) for number in asked]
    except ValueError:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = context.broker.metadata
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=type_)
            for type_ in dict.fromkeys(types)
            async for name in context.work.over(_names(type_, image))
        ]
    )


def _names(type_: ResourceType, image: MetadataImage) -> Iterable[str]:
    if type_ is ResourceType.TOPIC:
        return list(image.topics)
    if type_ in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(node_id) for node_id in image.brokers]
    return [resource.name for resource in image.configs if resource.type is type_]
