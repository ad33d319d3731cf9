"""FindCoordinator (10): the broker that keeps a group's, a transactional id's or a share partition's state.

- Up to version 3 one key is asked for, from version 4 several, each with its own error.
- The internal topic is created when it is first asked for; the answer waits for that, where Kafka answers
  COORDINATOR_NOT_AVAILABLE and the client asks again. So it does here if the topic cannot be created now.
- The coordinator is the leader of the key's partition of that topic: COORDINATOR_NOT_AVAILABLE while there is none, or
  none that is alive.
- A key type that does not exist, or share (2) before version 6, is INVALID_REQUEST. A share partition's key is
  `group:topic id:partition`.
- Up to version 3 an error message stands with every answer, "NONE" with success; from version 4 on it is empty.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.coordinator.partitioning import coordinator_partition
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from ottla.metastore.errors import MetadataError
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import DENIED, Each, Meant, Rule

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage
    from ottla.security.access import Access
    from ottla.server.apis.context import RequestContext

logger = logging.getLogger(__name__)

_SHARE: Final = 2
_NO_NODE: Final = -1
_FIRST_OF_MANY: Final = 4
_RESOURCES: Final = {0: AclResource.GROUP, 1: AclResource.TRANSACTIONAL_ID}


class _OfOneKey(NamedTuple):
    """The rule for requests before version 4, whose one key names a resource by its type."""

    def refusal(self, request: Any, version: int, access: Access) -> ErrorCode:
        resource = _RESOURCES.get(request.key_type)
        if request.key_type == _SHARE and not access.allows_on_cluster(AclOperation.CLUSTER_ACTION):
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if version >= _FIRST_OF_MANY or resource is None:
            return ErrorCode.NONE
        return ErrorCode.NONE if access.allows(AclOperation.DESCRIBE, resource, request.key) else DENIED[resource]


def _meant(key: str, request: Any, _image: MetadataImage) -> Meant:
    resource = _RESOURCES.get(request.key_type)
    return None if resource is None else (resource, key)


API = Api(ApiKey.FIND_COORDINATOR, Rule([_OfOneKey()], each=Each(AclOperation.DESCRIBE, "coordinator_keys", _meant)))

_TOPICS: Final = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE, 2: SHARE_GROUP_STATE}


async def handle(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    if context.header.api_version >= _FIRST_OF_MANY:
        return FindCoordinatorResponse(
            coordinators=[await _find(key, request.key_type, context) for key in request.coordinator_keys]
        )
    found = await _find(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=ErrorCode.NONE.name if not found.error_code else ErrorCode(found.error_code).message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(key: str, key_type: int, context: RequestContext) -> Coordinator:
    await context.work.charge()
    topic_name = _TOPICS.get(key_type)
    if topic_name is None or (key_type == _SHARE and not _is_share_key(key, context)):
        return _refused(key, ErrorCode.INVALID_REQUEST)
    broker = context.broker
    try:
        topic = await broker.controller.ensure_topic(topic_name)
    except MetadataError as error:
        logger.warning("%s cannot be created: %s", topic_name, error, extra={"topic": topic_name, "error": str(error)})
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = topic.partitions[coordinator_partition(key, len(topic.partitions))].leader
    image = broker.metadata.brokers.get(leader)
    endpoint = None if image is None or image.fenced else image.endpoint(context.listener)
    if endpoint is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=leader, host=endpoint.host, port=endpoint.port)


def _is_share_key(key: str, context: RequestContext) -> bool:
    parts = key.split(":")
    return context.header.api_version >= 6 and len(parts) == 3 and all(parts) and parts[2].isdecimal()


def _refused(key: str, code: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=_NO_NODE, host="", port=_NO_NODE, error_code=code)
