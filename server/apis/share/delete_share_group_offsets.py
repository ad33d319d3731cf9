"""DeleteShareGroupOffsets (92): forget where a share group without members is with topics (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.errors import CoordinatorError, UnknownSharePartitionError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.share.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.kproto.schema import ZERO_UUID
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.results import outcome
from ottla.server.apis.rules import Each, Named, Rule, by

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    Rule(
        [Named(AclOperation.DELETE, AclResource.GROUP, "group_id")],
        Each(AclOperation.READ, "topics", by(AclResource.TOPIC, "topic_name")),
    ),
)


async def handle(request: DeleteShareGroupOffsetsRequest, context: RequestContext) -> DeleteShareGroupOffsetsResponse:
    names = [topic.topic_name for topic in request.topics]
    image = context.broker.metadata
    try:
        outcomes = await context.broker.group_coordinator.share_groups.delete_offsets(request.group_id, names)
    except CoordinatorError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error_code(error), error_message=error_message(error))
    response = DeleteShareGroupOffsetsResponse()
    ended: set[str] = set()
    async for name in context.work.over(names):
        # As in Kafka, a topic of which nothing is known is answered as often as it is named, and without its id.
        is_unknown = isinstance(outcomes[name], UnknownSharePartitionError)
        if name in ended and not is_unknown:
            continue
        ended.add(name)
        topic = None if is_unknown else image.topic(name)
        code, message = outcome(outcomes[name])
        response.responses.append(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=ZERO_UUID if topic is None else topic.topic_id,
                error_code=code,
                error_message=message,
            )
        )
    return response
