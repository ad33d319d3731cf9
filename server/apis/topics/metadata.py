"""Metadata (3): the brokers, and the topics with who leads what.

- Version 0 asks for all topics with an empty list; from version 1 that is null, and an empty list is no topic.
- Missing topics are created if the request and `auto.create.topics.enable` allow it; the answer then has the topic,
  ready for records. Bad names are INVALID_TOPIC_EXCEPTION.
- From version 12 topics may be named by id (in 10 and 11 that is INVALID_REQUEST); an unknown id is UNKNOWN_TOPIC_ID.
- Leader epochs never go back (version 9 and later promise it): the image shows a change only when it is applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.hot import metadata as hot
from ottla.kproto.hot.metadata import EncodedTopic, encode_topic
from ottla.kproto.messages.topics.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from ottla.kproto.schema import Response
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.changes.eligible_leaders import is_enabled
from ottla.metadata.errors import InvalidTopicError, ThrottlingQuotaExceededError
from ottla.metadata.image import INTERNAL_TOPICS, MetadataImage, TopicImage
from ottla.metadata.topic_names import check_topic_name
from ottla.metastore.errors import MetadataError
from ottla.runtime.stages import Stages
from ottla.runtime.time_slice import CHUNK_ELEMENTS
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api, general_codec
from ottla.server.apis.errors import error_code, error_response_in_steps
from ottla.server.apis.pending import Pending, begin
from ottla.server.apis.results import NOT_ASKED, TOPIC_OPERATIONS, cluster_operations
from ottla.server.apis.rules import BY_HANDLER
from ottla.server.apis.topics.metadata_topics import EncodedTopics, View
from ottla.server.request_metrics import count_error


def _count_errors(errors: dict[int, int], response: MetadataResponse) -> None:
    """The topics' codes and not those of each partition, as in Kafka."""
    for topic in response.topics:
        if topic.error_code:
            count_error(errors, topic.error_code)


API = Api(
    ApiKey.METADATA,
    BY_HANDLER,
    codec=general_codec(ApiKey.METADATA, build_parts=hot.build_parts, build_in_steps=hot.build_in_steps),
    count_errors=_count_errors,
)

#: They are kept encoded, so that a partition costs little.
_PARTITIONS_AS_ELEMENT: Final = 8

#: Who is answered so hears nothing of what may be done to the topic.
_NO_OPERATIONS: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
Answer = TopicImage | MetadataResponseTopic

_NO_ID: Final = UUID(int=0)
# Of every node in the process: what a topic's image is encoded to depends on nothing else.
_ENCODED: Final = EncodedTopics(8 * 1024 * 1024)


def handle(request: MetadataRequest, context: RequestContext) -> Response | Pending | None:
    return begin(_handle(request, context))


def _handle(request: MetadataRequest, context: RequestContext) -> Stages[Response | None]:
    version = context.header.api_version
    asked = request.topics
    if asked is not None and 10 <= version < 12 and any(it.topic_id != _NO_ID or it.name is None for it in asked):
        steps = error_response_in_steps(request, version, ErrorCode.INVALID_REQUEST)
        refused: Response | None = yield partial(context.work.run, steps, counts=False)
        return refused
    if asked is None or (version == 0 and not asked):
        answered: list[Answer] = yield from _all(context)
    else:
        answered = yield from _named(asked, request, context)
    # After the auto-creations, so that what was created is in it.
    image = context.broker.metadata
    brokers = _brokers(image, context.listener)
    topic_operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    reachable = frozenset([broker.node_id for broker in brokers])
    unreachable = frozenset([broker.node_id for broker in image.live_brokers()]) - reachable
    view = View(version, reachable, unreachable, topic_operations, is_enabled(image))
    encoded = yield from _encoded(answered, view, context)
    return MetadataResponse(
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=encoded,  # type: ignore[arg-type]  # ottla.kproto.hot.metadata builds them
        cluster_authorized_operations=(
            cluster_operations(context.access) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _all(context: RequestContext) -> Stages[list[Answer]]:
    """The topics that the sender may see."""
    access, topics = context.access, context.broker.metadata.topics.values()
    if access is None:
        return list(topics)
    seen: list[Answer] = []
    for number, it in enumerate(topics, 1):
        if number % CHUNK_ELEMENTS == 0 and context.work.is_due(CHUNK_ELEMENTS):
            yield partial(context.work.charge, 0)
        if access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, it.name, is_asked=False):
            seen.append(it)
    return seen


def _named(
    asked: Sequence[MetadataRequestTopic], request: MetadataRequest, context: RequestContext
) -> Stages[list[Answer]]:
    """The topics that were asked for, each once."""
    distinct: dict[tuple[UUID, str | None], MetadataRequestTopic] = {}
    for number, it in enumerate(asked, 1):
        if number % CHUNK_ELEMENTS == 0 and context.work.is_over:
            yield partial(context.work.charge, 0)
        distinct[it.topic_id, it.name] = it
    if len(distinct) > CHUNK_ELEMENTS:
        context.work.leave(distinct)
    answered: list[Answer] = []
    for number, it in enumerate(distinct.values(), 1):
        if number % CHUNK_ELEMENTS == 0 and context.work.is_due(CHUNK_ELEMENTS):
            yield partial(context.work.charge, 0)
        found = _find(it, request, context)
        if found is None:
            found = yield partial(_create, it.name or "", context)
        answered.append(found)
    return answered


def _encoded(topics: list[Answer], view: View, context: RequestContext) -> Stages[list[EncodedTopic]]:
    encoded = []
    access = context.access
    asks_operations = view.topic_operations != NOT_ASKED
    uncounted = 0
    for topic in topics:
        if isinstance(topic, TopicImage):
            if access is not None and asks_operations:
                may = access.operations(TOPIC_OPERATIONS, AclResource.TOPIC, topic.name)
                view = view._replace(topic_operations=may)
            kept = _ENCODED.kept(topic, view)
            if kept is None:
                kept = yield partial(_ENCODED.get, topic, view, context.work)
            encoded.append(kept)
        else:
            if asks_operations and topic.error_code not in _NO_OPERATIONS:
                may = TOPIC_OPERATIONS
                if access is not None:
                    may = access.operations(TOPIC_OPERATIONS, AclResource.TOPIC, topic.name or "")
                topic.topic_authorized_operations = may
            encoded.append(encode_topic(topic, view.version))
        uncounted += 1 + len(topic.partitions) // _PARTITIONS_AS_ELEMENT
        if uncounted >= CHUNK_ELEMENTS:
            if context.work.is_due(uncounted):
                yield partial(context.work.charge, 0)
            uncounted = 0
    return encoded


def _find(asked: MetadataRequestTopic, request: MetadataRequest, context: RequestContext) -> Answer | None:
    """The answer about a topic; None if the topic is to be created."""
    broker = context.broker
    if asked.topic_id != _NO_ID:
        topic = broker.metadata.topic_by_id(asked.topic_id)
        if topic is not None and not _may(context, AclOperation.DESCRIBE, topic.name):
            return MetadataResponseTopic(
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=asked.topic_id
            )
        if topic is not None:
            return topic
        name = None if context.header.api_version >= 12 else ""
        return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=asked.topic_id)
    name = asked.name or ""
    if not _may(context, AclOperation.DESCRIBE, name):
        return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = broker.metadata.topic(name)
    if topic is not None:
        return topic
    if request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
        if not _may_create(context, name):
            return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return None
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return _refused(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    return _refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _refused(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


async def _create(name: str, context: RequestContext) -> Answer:
    broker = context.broker
    try:
        # A client whose quota is used up gets no topic for now, and asks again (KIP-599).
        quota = broker.quotas.mutation_quota(context, strict_from=0)
        return await broker.controller.ensure_topic(name, take_quota=quota.take)
    except InvalidTopicError:
        return _refused(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    except ThrottlingQuotaExceededError:
        return _refused(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except MetadataError as error:
        return _refused(name, error_code(error))


def _may(context: RequestContext, operation: AclOperation, name: str) -> bool:
    return context.access is None or context.access.allows(operation, AclResource.TOPIC, name)


def _may_create(context: RequestContext, name: str) -> bool:
    access = context.access
    return (
        access is None
        or access.allows_on_cluster(AclOperation.CREATE, is_asked=False)
        or access.allows(AclOperation.CREATE, AclResource.TOPIC, name)
    )


def _brokers(image: MetadataImage, listener: str) -> list[MetadataResponseBroker]:
    brokers = []
    for broker in image.live_brokers():
        endpoint = broker.endpoint(listener)
        if endpoint is not None:
            brokers.append(
                MetadataResponseBroker(node_id=broker.node_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            )
    return brokers
