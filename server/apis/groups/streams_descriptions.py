"""Descriptions of topologies as StreamsGroupDescribe answers with them (KIP-1331)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from ottla.coordinator.group.streams.description import DescriptionStatus, parse_description
from ottla.kproto.errors import DecodeError
from ottla.kproto.messages.groups.streams_group_describe import (
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

if TYPE_CHECKING:
    from ottla.kproto.messages.groups import streams_group_topology_description_update as kept

logger = logging.getLogger(__name__)

#: A description of so many bytes is read in less than 500 µs; a larger one in a worker thread.
_ON_THE_LOOP_BYTES: Final = 4096


async def described(data: bytes | None) -> tuple[DescriptionStatus, TopologyDescription | None]:
    """A group's description as it is kept, in an answer."""
    if data is None:
        return DescriptionStatus.NOT_STORED, None
    try:
        if len(data) > _ON_THE_LOOP_BYTES:
            return DescriptionStatus.AVAILABLE, await trio.to_thread.run_sync(_parse, data)
        return DescriptionStatus.AVAILABLE, _parse(data)
    except DecodeError as error:
        logger.warning("a stored description of a topology cannot be read: %s", error)
        return DescriptionStatus.ERROR, None


def _parse(data: bytes) -> TopologyDescription:
    description = parse_description(data)
    return TopologyDescription(
        subtopologies=[
            TopologyDescriptionSubtopology(
                subtopology_id=each.subtopology_id, nodes=[_node(node) for node in each.nodes]
            )
            for each in description.subtopologies
        ],
        global_stores=[
            TopologyDescriptionGlobalStore(source=_node(each.source), processor=_node(each.processor))
            for each in description.global_stores
        ],
    )


def _node(node: kept.TopologyDescriptionNode) -> TopologyDescriptionNode:
    return TopologyDescriptionNode(
        name=node.name,
        node_type=node.node_type,
        source_topics=node.source_topics,
        sink_topic=node.sink_topic,
        stores=node.stores,
        successors=node.successors,
    )
