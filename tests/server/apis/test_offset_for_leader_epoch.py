"""OffsetForLeaderEpoch: the handler's part; where epochs end is the partition's, and tested there."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.replica import errors as replica
from ottla.replica.partition import EpochEndOffset
from ottla.storage import errors as storage

Cluster = Any


class StubPartition:
    """Knows that every epoch ended at offset 9 of epoch 3; the current one is 5."""

    def require_readable(self, current_leader_epoch: int) -> None:
        if current_leader_epoch not in (-1, 5):
            raise replica.FencedLeaderEpochError

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        return EpochEndOffset(3, 9)


async def ask(cluster: Cluster, version: int, name: str = "topic", current: int = -1) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(partition=0, leader_epoch=4, current_leader_epoch=current)
    topic = OffsetForLeaderTopic(topic=name, partitions=[asked])
    response = await cluster.call(OffsetForLeaderEpochRequest(topics=[topic]), version)
    (answer,) = response.topics[0].partitions
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_the_end_of_an_epoch(cluster: Cluster, version: int) -> None:
    cluster.manager.partition = StubPartition()
    assert await ask(cluster, version) == (ErrorCode.NONE, 3, 9)
    assert await ask(cluster, version, current=5) == (ErrorCode.NONE, 3, 9)
    assert await ask(cluster, version, current=4) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (replica.UnknownTopicIdError(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (replica.NotLeaderError(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (storage.StoreOfflineError(), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_errors(cluster: Cluster, error: Exception, code: ErrorCode) -> None:
    cluster.manager.partition = error
    assert await ask(cluster, 4) == (code, -1, -1)
    assert await ask(cluster, 4, name="nothing") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
