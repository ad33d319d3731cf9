"""Who may commit and fetch offsets of a group, by its kind. Whatever is refused is a CoordinatorError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.coordinator.errors import GroupIdNotFoundError, IllegalGenerationError, UnsupportedCommitError
from ottla.server.coordinator.group.classic_group import ClassicGroup
from ottla.server.coordinator.group.consumer_group import ConsumerGroup, ConsumerMember
from ottla.server.coordinator.group.share_group import ShareGroup
from ottla.server.coordinator.group.streams_group import StreamsGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.server.coordinator.group.classic import ClassicProtocol
    from ottla.server.coordinator.group.commits import OffsetToCommit
    from ottla.server.coordinator.group.offsets import TopicPartition
    from ottla.server.coordinator.group.shard import Group
    from ottla.server.coordinator.replay import Producer


def check_commit(
    group: Group | None,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetToCommit],
    classic: ClassicProtocol,
    *,
    member_id: str,
    group_instance_id: str | None,
    generation_id: int,
    producer: Producer | None,
    knows_epochs: bool,
) -> None:
    """Whether somebody may commit these offsets; the arguments are those of `GroupOffsets.commit`."""
    if group is None:
        if generation_id >= 0:
            absent = GroupIdNotFoundError if knows_epochs else IllegalGenerationError
            raise absent(f"Group {group_id} not found.")
        return
    if isinstance(group, ClassicGroup):
        classic.validate_commit(
            group,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation_id=generation_id,
            transactional=producer is not None,
        )
        return
    if isinstance(group, ShareGroup):
        raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
    # Without an epoch: an administrator while nobody is in the group, or a producer that names no member.
    if generation_id < 0 and (not group.members or (producer is not None and not member_id)):
        return
    member = group.find_member(member_id)
    speaks_classic = isinstance(member, ConsumerMember) and member.classic is not None
    if not knows_epochs and not speaks_classic and producer is None:
        raise UnsupportedCommitError(f"{member_id} commits in a version that has no member epochs")
    if isinstance(group, StreamsGroup):
        group.validate_commit(member_id, generation_id, ((key.topic, key.partition) for key in offsets))
    else:
        committed = ((offset.topic_id, key.partition) for key, offset in offsets.items())
        group.validate_commit(member_id, generation_id, committed)


def check_fetch(group: Group | None, member_id: str | None, member_epoch: int) -> None:
    """Whether somebody may fetch offsets: a classic group lets anybody, the newer ones check who names a member.

    A share group has none, and is answered like a group that is not there.
    """
    if member_id is None and member_epoch < 0:
        return
    if isinstance(group, ConsumerGroup):
        group.validate_member(member_id or "", member_epoch)
    elif isinstance(group, StreamsGroup):
        group.validate_fetch(member_id or "", member_epoch)
