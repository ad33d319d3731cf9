"""Committed offsets of groups, on both sides of a mirror."""

from __future__ import annotations

from collections.abc import Collection

from ottla.client.admin.group_state import SHARE, Coordinator, committed_offsets
from ottla.client.client import Client
from ottla.client.offsets import TopicPartition
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.server.mirror.names import NamePattern


def differing_groups(here: Client, there: Client, topics: Collection[str], names: NamePattern) -> list[str]:
    """The groups of the source that have committed offsets of these topics which are not the same here."""
    found = []
    for group in _groups(there):
        if names.matches(group):
            wanted = _offsets(there, group, topics)
            known = _offsets(here, group, topics) if wanted else {}
            if any(known.get(it) != offset for it, offset in wanted.items()):
                found.append(group)
    return found


def _groups(client: Client) -> list[str]:
    found: set[str] = set()
    for broker in client.metadata([]).brokers:
        listed = client.broker(broker.node_id).call(ListGroupsRequest()).groups
        found |= {it.group_id for it in listed if it.group_type.lower() != SHARE}
    return sorted(found)


def _offsets(client: Client, group: str, topics: Collection[str]) -> dict[TopicPartition, int]:
    found = committed_offsets(Coordinator(client, 30), group)
    return {it: offset for it, offset in found.items() if it.topic in topics}
