"""CreatePartitions (37): topics get more partitions, never fewer. Each topic is answered separately.

A client beyond its `controller_mutation_rate` is refused from version 3 on, and before that slowed down (KIP-599).
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.changes.topic_changes import NewPartitions
from ottla.metadata.errors import InvalidRequestError
from ottla.metastore.errors import MetadataError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import duplicates, outcome
from ottla.server.apis.rules import Each, Rule, by

API = Api(
    ApiKey.CREATE_PARTITIONS,
    Rule(each=Each(AclOperation.ALTER, "topics", by(AclResource.TOPIC, "name"))),
    forwarded=True,
    timed=True,
    changes_metadata=True,
)


async def handle(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    repeated = duplicates(topic.name for topic in request.topics)
    results: dict[str, MetadataError | None] = {
        name: InvalidRequestError("Duplicate topic name.") for name in sorted(repeated)
    }
    asked = [
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
        )
        async for topic in context.work.over(request.topics)
        if topic.name not in repeated
    ]
    quota = context.broker.quotas.mutation_quota(context, strict_from=3)
    try:
        controller = context.broker.controller
        results.update(
            await controller.create_partitions(asked, validate_only=request.validate_only, take_quota=quota.take)
        )
    except MetadataError as error:
        results.update((topic.name, error) for topic in asked)
    answers = []
    async for name in context.work.over(dict.fromkeys(topic.name for topic in request.topics)):
        code, message = outcome(results[name])
        answers.append(CreatePartitionsTopicResult(name=name, error_code=code, error_message=message))
    response = CreatePartitionsResponse(results=answers)
    context.broker.quotas.settle(quota, context, response)
    return response
