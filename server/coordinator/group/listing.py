"""Groups of all protocols, as ListGroups lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.server.coordinator.group import consumer_protocol, share_group, streams_group
from ottla.server.coordinator.group.classic_group import ClassicGroup
from ottla.server.coordinator.group.consumer_group import ConsumerGroup
from ottla.server.coordinator.group.share_group import ShareGroup

if TYPE_CHECKING:
    from ottla.server.coordinator.group.shard import Group


class GroupListing(NamedTuple):
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


def listing_of(group: Group) -> GroupListing:
    """A group's line."""
    if isinstance(group, ClassicGroup):
        return GroupListing(group.group_id, group.protocol_type or "", group.state.value, "classic")
    if isinstance(group, ConsumerGroup):
        return GroupListing(group.group_id, consumer_protocol.PROTOCOL_TYPE, group.state.value, "consumer")
    if isinstance(group, ShareGroup):
        return GroupListing(group.group_id, share_group.PROTOCOL_TYPE, group.state.value, "share")
    return GroupListing(group.group_id, streams_group.PROTOCOL_TYPE, group.state.value, "streams")
