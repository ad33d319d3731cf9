"""Committing offsets for a group that has no members, as `ottla group seek` and `ottla consume --group` do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.cli import CommandError
from ottla.client.admin.group_state import Coordinator
from ottla.client.errors import BrokerError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_COMMIT_BY_NAME: Final = 9


def in_use(group_id: str, why: str) -> CommandError:
    """Members would overwrite this commit, and continue from where they are."""
    return CommandError(
        f"group {group_id} {why}: stop its consumers first, because they would not notice the new offsets"
    )


def commit(coordinator: Coordinator, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit. Raises CommandError if the group has members: a commit from outside must not overrule them."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, index), offset in offsets.items():
        named = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic))
        named.partitions.append(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        )
    answer = coordinator.call(
        group_id,
        OffsetCommitRequest(group_id=group_id, topics=list(topics.values())),
        lambda answer: int(answer.topics[0].partitions[0].error_code),
        at_most=_COMMIT_BY_NAME,
    )
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
                raise in_use(group_id, "has members now")
            if partition.error_code:
                raise BrokerError(partition.error_code, what=f"{topic.name}-{partition.partition_index}")
