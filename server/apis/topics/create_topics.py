"""CreateTopics (19): new topics, by counts or by a manual assignment of replicas.

- A count of -1 means the broker's default (from version 4). `validate_only` says what would happen, and creates
  nothing.
- A topic is answered when it accepts records. One wrong topic does not affect the others; a name that occurs twice
  fails with INVALID_REQUEST and is answered once.
- A client beyond its `controller_mutation_rate` is refused from version 6 on, and before that slowed down (KIP-599).
- From version 5 the answer has the counts and every config; from version 7 the topic's id.
"""

from __future__ import annotations

from typing import Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.errors import InvalidRequestError, TopicNotAuthorizedError
from ottla.metadata.image import TopicImage
from ottla.metastore.errors import MetadataError
from ottla.runtime.errors import kept
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import duplicates, outcome
from ottla.server.apis.rules import BY_HANDLER
from ottla.settings.config import BrokerConfig
from ottla.settings.description import describe_topic

API = Api(ApiKey.CREATE_TOPICS, BY_HANDLER, forwarded=True, timed=True, changes_metadata=True)

#: About how many configs a topic has.
_CONFIGS_OF_TOPIC: Final = 32


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    broker = context.broker
    repeated = duplicates(topic.name for topic in request.topics)
    results: dict[str, TopicImage | MetadataError] = {
        name: InvalidRequestError("Duplicate topic name.") for name in sorted(repeated)
    }
    quota = broker.quotas.mutation_quota(context, strict_from=6)
    asked = []
    async for topic in context.work.over(request.topics):
        if topic.name in repeated:
            continue
        try:
            _check_access(topic.name, context)
            asked.append(await _new_topic(topic, context))
        except MetadataError as error:
            results[topic.name] = kept(error)
    try:
        results.update(
            await broker.controller.create_topics(asked, validate_only=request.validate_only, take_quota=quota.take)
        )
    except MetadataError as error:
        results.update((topic.name, error) for topic in asked)
    # Distinct names, in the order of the request.
    names = dict.fromkeys(topic.name for topic in request.topics)
    response = CreateTopicsResponse(
        topics=[await _result(name, results[name], broker.config, context) for name in names]
    )
    broker.quotas.settle(quota, context, response)
    return response


def _check_access(name: str, context: RequestContext) -> None:
    access = context.access
    if access is None or access.allows_on_cluster(AclOperation.CREATE, is_asked=False):
        return
    if not access.allows(AclOperation.CREATE, AclResource.TOPIC, name):
        raise TopicNotAuthorizedError("Authorization failed.")


async def _new_topic(topic: CreatableTopic, context: RequestContext) -> NewTopic:
    assignments: dict[int, list[int]] = {}
    repeated: int | None = None
    async for assignment in context.work.over(topic.assignments, counts=False):
        if assignment.partition_index in assignments and repeated is None:
            repeated = assignment.partition_index
        assignments[assignment.partition_index] = assignment.broker_ids
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        {config.name: config.value async for config in context.work.over(topic.configs, counts=False)},
        repeated_partition=repeated,
    )


async def _result(
    name: str, result: TopicImage | MetadataError, config: BrokerConfig, context: RequestContext
) -> CreatableTopicResult:
    await context.work.charge()
    if isinstance(result, MetadataError):
        code, message = outcome(result)
        return CreatableTopicResult(name=name, error_code=code, error_message=message)
    access = context.access
    if access is not None and not access.allows(AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, name, is_asked=False):
        return CreatableTopicResult(
            name=name,
            error_message=None,
            topic_id=result.topic_id,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            num_partitions=-1,
            replication_factor=-1,
        )
    await context.work.charge(_CONFIGS_OF_TOPIC)
    return CreatableTopicResult(
        name=name,
        error_message=None,
        topic_id=result.topic_id,
        num_partitions=len(result.partitions),
        replication_factor=len(result.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=it.name,
                # As it was given, where DescribeConfigs tells how it was read.
                value=result.configs.get(it.name, it.value),
                read_only=it.is_read_only,
                config_source=it.source,
                is_sensitive=it.is_sensitive,
            )
            for it in describe_topic(result.configs, config)
            if it.is_listed
        ],
    )
