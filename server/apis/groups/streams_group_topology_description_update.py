"""StreamsGroupTopologyDescriptionUpdate (93): a member of a streams group describes its topology (KIP-1331).

It does so when the answer to a heartbeat asks for it. The description is kept with the group, for those who look at it.
Kafka needs a plugin for that, and answers UNSUPPORTED_VERSION without one. One that is too large is
STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, and is not asked for again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ottla.coordinator.errors import CoordinatorError, InvalidRequestError
from ottla.coordinator.group.streams.description import MAX_SIZE_BYTES, NodeType, build_description
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.groups.group_protocols import GroupProtocol
from ottla.server.apis.groups.streams_groups import MAX_ELEMENTS
from ottla.server.apis.rules import Named, Rule

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, Rule([Named(AclOperation.READ, AclResource.GROUP, "group_id")])
)

#: So many elements are looked at and written in less than 500 µs; more in a worker thread.
_ON_THE_LOOP: Final = 100


async def handle(
    request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    if not GroupProtocol.STREAMS.is_enabled(context):
        return StreamsGroupTopologyDescriptionUpdateResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        for name, value in (("MemberId", request.member_id), ("GroupId", request.group_id)):
            if not value.strip():
                raise InvalidRequestError(f"{name} can't be empty.")
        description = await _description(request.topology_description, context.work.elements)
        await context.broker.group_coordinator.streams_groups.describe_topology(
            request.group_id, request.member_id, request.topology_epoch, description
        )
    except CoordinatorError as error:
        return StreamsGroupTopologyDescriptionUpdateResponse(
            error_code=error_code(error), error_message=error_message(error)
        )
    return StreamsGroupTopologyDescriptionUpdateResponse()


async def _description(given: TopologyDescription, elements: int) -> bytes | None:
    """The description as it is kept; None if it is too large. Raises InvalidRequestError."""
    if elements > MAX_ELEMENTS:
        return None
    if elements > _ON_THE_LOOP:
        built = await trio.to_thread.run_sync(_build, given)
    else:
        built = _build(given)
    return built if len(built) <= MAX_SIZE_BYTES else None


def _build(given: TopologyDescription) -> bytes:
    return build_description(
        TopologyDescription(
            subtopologies=[
                TopologyDescriptionSubtopology(
                    subtopology_id=each.subtopology_id, nodes=[_node(node) for node in each.nodes]
                )
                for each in given.subtopologies
            ],
            global_stores=[_global_store(each) for each in given.global_stores],
        )
    )


def _global_store(given: TopologyDescriptionGlobalStore) -> TopologyDescriptionGlobalStore:
    source, processor = _node(given.source), _node(given.processor)
    if (source.node_type, processor.node_type) != (NodeType.SOURCE, NodeType.PROCESSOR):
        raise InvalidRequestError("Global store must be composed of a source and a processor node.")
    return TopologyDescriptionGlobalStore(source=source, processor=processor)


def _node(given: TopologyDescriptionNode) -> TopologyDescriptionNode:
    """A node with what its kind has, each name once."""
    kind = given.node_type
    if kind not in NodeType.__members__.values():
        raise InvalidRequestError(f"Unknown topology node type: {kind}")
    return TopologyDescriptionNode(
        name=given.name,
        node_type=kind,
        source_topics=list(dict.fromkeys(given.source_topics)) if kind == NodeType.SOURCE else [],
        sink_topic=given.sink_topic if kind == NodeType.SINK else None,
        stores=list(dict.fromkeys(given.stores)) if kind == NodeType.PROCESSOR else [],
        successors=list(dict.fromkeys(given.successors)),
    )
