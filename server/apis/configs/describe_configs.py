"""DescribeConfigs (32): every setting of topics, brokers, groups, client metrics and loggers.

- Each with its value, where that comes from, its synonyms (what else could give it, first the one that does), its
  type and, if asked, a sentence about it. The value of a password is null. Null or no keys mean all of them, except
  those of Ottla itself (`ottla.…`) that nobody has set: they are only returned by name.
- The broker '' has what was set for all brokers. A broker only answers for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.errors import InvalidRequestError, UnknownTopicError
from ottla.metadata.image import ConfigResource, MetadataImage, ResourceType
from ottla.metadata.topic_names import check_topic_name
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import Each, Meant, Rule
from ottla.server.broker import Broker
from ottla.settings.config import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.settings.description import (
    ConfigDescription,
    ConfigSource,
    describe_broker,
    describe_broker_default,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from ottla.settings.loggers import logger_levels
from ottla.settings.types import SettingType


def _meant(item: Any, _request: Any, _image: MetadataImage) -> Meant:
    if item.resource_type == ResourceType.TOPIC:
        return AclResource.TOPIC, item.resource_name
    if item.resource_type == ResourceType.GROUP:
        return AclResource.GROUP, item.resource_name
    if item.resource_type in list(ResourceType):
        return AclResource.CLUSTER, "kafka-cluster"
    return None


API = Api(ApiKey.DESCRIBE_CONFIGS, Rule(each=Each(AclOperation.DESCRIBE_CONFIGS, "resources", _meant)))


async def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    expected = 0
    async for asked in context.work.over(request.resources, counts=False):
        expected += _expected(asked)
    await context.work.expect(expected)
    results = []
    for asked in request.resources:
        await context.work.charge()
        result = DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
        try:
            described = _describe(asked, context.broker)
            keys = {key: None async for key in context.work.over(asked.configuration_keys or (), counts=False)}
            context.work.leave(keys)
            result.configs = [
                _answer(it, request)
                async for it in context.work.over(described, counts=False)
                if (it.name in keys if keys else it.is_listed)
            ]
        except MetadataError as error:
            code, message = outcome(error)
            result.error_code, result.error_message = code, message or ""
        else:
            await context.work.charge(len(result.configs))
            # Kafka sends an empty text and not null where there is no error.
            result.error_code, result.error_message = ErrorCode.NONE, ""
        results.append(result)
    return DescribeConfigsResponse(results=results)


def _expected(asked: DescribeConfigsResource) -> int:
    """About how many configs will be in the answer for a resource."""
    if asked.configuration_keys:
        return len(asked.configuration_keys)
    if asked.resource_type == ResourceType.TOPIC:
        return len(TOPIC_SETTINGS)
    return len(BROKER_SETTINGS) if asked.resource_type == ResourceType.BROKER and asked.resource_name else 1


def _describe(asked: DescribeConfigsResource, broker: Broker) -> Iterable[ConfigDescription]:
    name = asked.resource_name
    image, config = broker.metadata, broker.config
    try:
        resource = ConfigResource(ResourceType(asked.resource_type), name)
    except ValueError:
        raise InvalidRequestError(f"Unsupported resource type: {asked.resource_type}") from None
    own = image.resource_configs(resource)
    if resource.type is ResourceType.TOPIC:
        check_topic_name(name)
        if name not in image.topics:
            raise UnknownTopicError
        return describe_topic(own, config)
    if resource.type is ResourceType.GROUP:
        if not name:
            raise InvalidRequestError("Group name must not be empty")
        return describe_group(own, config)
    if resource.type is ResourceType.CLIENT_METRICS:
        if not name:
            raise InvalidRequestError("Client metrics subscription name must not be empty")
        return describe_client_metrics(own, config)
    _check_broker(resource, broker.node_id)
    if resource.type is ResourceType.BROKER_LOGGER:
        return _loggers()
    return describe_broker(config) if name else describe_broker_default(config)


def _check_broker(resource: ConfigResource, node_id: int) -> None:
    name = resource.name
    is_logger = resource.type is ResourceType.BROKER_LOGGER
    if not name and not is_logger:
        return
    if not name:
        raise InvalidRequestError("Broker id must not be empty")
    if not re.fullmatch(r"[+-]?[0-9]+", name):
        raise InvalidRequestError(f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        expected = str(node_id) if is_logger else f"{node_id} or empty string,"
        raise InvalidRequestError(f"Unexpected broker id, expected {expected} but received {name}")


def _loggers() -> Iterator[ConfigDescription]:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    for name, level in logger_levels().items():
        yield ConfigDescription(name, level, source, SettingType.STRING, False, False, (), "")


def _answer(description: ConfigDescription, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=description.name,
        value=description.value,
        read_only=description.is_read_only,
        config_source=description.source,
        is_sensitive=description.is_sensitive,
        synonyms=[DescribeConfigsSynonym(name=it.name, value=it.value, source=it.source) for it in description.synonyms]
        if request.include_synonyms
        else [],
        config_type=description.type,
        documentation=description.documentation if request.include_documentation else None,
    )
