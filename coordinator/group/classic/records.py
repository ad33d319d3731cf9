"""Classic groups as records of `__consumer_offsets` (record type 2): one record holds the whole group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.coordinator.group.classic.member import ClassicMember, Protocol
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records.consumer_offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from ottla.kproto.internal_records.coordinator import build_key, build_value

GROUP_VALUE_VERSION: Final = 3


def group_metadata(
    group_id: str,
    members: Iterable[ClassicMember],
    assignments: Mapping[str, bytes],
    *,
    protocol_type: str | None,
    generation_id: int,
    protocol_name: str | None,
    leader_id: str | None,
    current_state_since_ms: int,
) -> CoordinatorRecord:
    """The record of a group's generation with the assignments given, by member id."""
    value = GroupMetadataValue(
        protocol_type=protocol_type or "",
        generation=generation_id,
        protocol=protocol_name,
        leader=leader_id,
        current_state_timestamp=current_state_since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol_name or ""),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in members
        ],
    )
    return CoordinatorRecord(build_key(GroupMetadataKey(group=group_id)), build_value(value, GROUP_VALUE_VERSION))


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """The record that removes a group."""
    return CoordinatorRecord(build_key(GroupMetadataKey(group=group_id)), None)


def read_members(value: GroupMetadataValue) -> Iterator[ClassicMember]:
    """The members that a record names, each with the one protocol that its generation had."""
    for member in value.members:
        yield ClassicMember(
            member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout,
            session_timeout_ms=member.session_timeout,
            protocols=[Protocol(value.protocol or "", bytes(member.subscription))],
            assignment=bytes(member.assignment),
        )
