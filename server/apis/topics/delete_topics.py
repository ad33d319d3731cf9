"""DeleteTopics (20): topics by name, and from version 6 by name or id.

- A deleted topic's id is unknown forever: a topic that is created again has another one.
- What is named twice, both by name and id, or neither way is INVALID_REQUEST.
- A client beyond its `controller_mutation_rate` is refused from version 5 on, and before that slowed down (KIP-599).
- Where `delete.topic.enable` is false: TOPIC_DELETION_DISABLED, before version 3 INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.topics.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.errors import (
    InvalidRequestError,
    TopicDeletionDisabledError,
    TopicNotAuthorizedError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from ottla.metadata.image import MetadataImage
from ottla.metastore.errors import MetadataError
from ottla.runtime.errors import kept
from ottla.security.access import Access
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.results import duplicates, outcome
from ottla.server.apis.rules import BY_HANDLER

API = Api(ApiKey.DELETE_TOPICS, BY_HANDLER, forwarded=True, timed=True, changes_metadata=True)

_NO_ID: Final = UUID(int=0)


async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    version = context.header.api_version
    given = [DeleteTopicState(name=name) for name in request.topic_names] if version < 6 else request.topics
    # What is named twice is answered once.
    asked = list({(it.name, it.topic_id): it for it in given}.values())
    controller = context.broker.controller
    image = context.broker.metadata
    names = duplicates(it.name for it in given if it.name is not None and it.topic_id == _NO_ID)
    ids = duplicates(it.topic_id.hex for it in given if it.name is None)
    found: list[UUID | MetadataError] = []
    async for it in context.work.over(asked):
        try:
            _check_access(it, image, context.access)
            found.append(_resolve(it, names, ids, image))
        except MetadataError as error:
            found.append(kept(error))
    quota = context.broker.quotas.mutation_quota(context, strict_from=5)
    topic_ids = [it for it in found if isinstance(it, UUID)]
    results: dict[UUID, MetadataError | None]
    try:
        # A topic that is meant by its name and by its id is deleted once and answered twice.
        results = await controller.delete_topics(list(dict.fromkeys(topic_ids)), take_quota=quota.take)
    except TopicDeletionDisabledError as error:
        refusal = error if version >= 3 else InvalidRequestError(str(error))
        results = dict.fromkeys(topic_ids, refusal)
    except MetadataError as error:
        results = dict.fromkeys(topic_ids, error)
    response = DeleteTopicsResponse(
        responses=[
            _result(it, topic, results[topic] if isinstance(topic, UUID) else topic, image)
            async for it, topic in context.work.over(zip(asked, found, strict=True))
        ]
    )
    context.broker.quotas.settle(quota, context, response)
    return response


def _check_access(asked: DeleteTopicState, image: MetadataImage, access: Access | None) -> None:
    """Raise TopicNotAuthorizedError for what the sender may not delete, whether it is named or given by id."""
    if access is None or access.allows_on_cluster(AclOperation.DELETE, is_asked=False):
        return
    topic = image.topic_by_id(asked.topic_id) if asked.name is None else image.topic(asked.name)
    name = asked.name if topic is None else topic.name
    if name is None:
        return
    may_know = access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, name)
    if may_know and (topic is None or access.allows(AclOperation.DELETE, AclResource.TOPIC, name)):
        return
    error = TopicNotAuthorizedError("Topic authorization failed.")
    if may_know:
        error.topic = name
    raise error


def _resolve(asked: DeleteTopicState, names: set[str], ids: set[str], image: MetadataImage) -> UUID:
    if asked.name is not None and asked.topic_id != _NO_ID:
        raise InvalidRequestError("You may not specify both topic name and topic id.")
    if asked.name is None and asked.topic_id == _NO_ID:
        raise InvalidRequestError("Neither topic name nor id were specified.")
    if asked.name is None:
        if asked.topic_id.hex in ids:
            raise InvalidRequestError("Duplicate topic id.")
        if image.topic_by_id(asked.topic_id) is None:
            raise UnknownTopicIdError("This server does not host this topic ID.")
        return asked.topic_id
    if asked.name in names:
        raise InvalidRequestError("Duplicate topic name.")
    topic = image.topic(asked.name)
    if topic is None:
        raise UnknownTopicError("This server does not host this topic-partition.")
    return topic.topic_id


def _result(
    asked: DeleteTopicState, found: UUID | MetadataError, error: MetadataError | None, image: MetadataImage
) -> DeletableTopicResult:
    code, message = outcome(error)
    name, topic_id = asked.name, asked.topic_id
    if isinstance(error, TopicNotAuthorizedError) and name is None:
        name = error.topic
    if isinstance(found, UUID) and error is None:
        topic = image.topic_by_id(found)
        name, topic_id = (name if topic is None else topic.name), found
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
