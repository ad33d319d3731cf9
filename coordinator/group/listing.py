"""Groups of all protocols, as ListGroups lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group


class GroupListing(NamedTuple):
    """One line of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


def listing_of(group: Group) -> GroupListing:
    """A group's line."""
    return GroupListing(group.group_id, group.protocol_type or "", group.state.value, group.kind)
