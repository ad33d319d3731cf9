"""Shards of groups whose sessions do not run: what a partition's records alone make of it."""

from unittest.mock import Mock

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.protocol import GroupProtocols
from ottla.coordinator.group.shard.shard import GroupShard
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.streams.group import StreamsGroup


def still_shard() -> GroupShard:
    """A shard while it is loaded."""
    classic = Mock(
        group_class=ClassicGroup,
        create=lambda group_id: ClassicGroup(group_id, now_ms=0),
        restore=lambda group_id, value: ClassicGroup.restored(group_id, value, now_ms=0),
    )
    others = [Mock(group_class=each) for each in (ConsumerGroup, ShareGroup, StreamsGroup)]
    return GroupShard(0, GroupProtocols(classic, others))
