"""A member of a share group as a client plays it, on the wire."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import trio

from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.share.share_acknowledge import (
    AcknowledgementBatch as AcknowledgedBatch,
)
from ottla.kproto.messages.share.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.kproto.messages.share.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.server.share.in_flight import ACCEPT
from tests.servers import Client, RunningNode

ASSIGNMENT_SECONDS = 20


class ShareClient:
    """One member of a share group, with one connection."""

    def __init__(self, client: Client, group: str, member_id: str) -> None:
        self.client = client
        self.group = group
        self.member_id = member_id
        self.epoch = 0
        self.session_epoch = 0
        self.assigned: dict[UUID, list[int]] = {}

    @classmethod
    async def join(cls, node: RunningNode, group: str, member_id: str, *topics: str) -> ShareClient:
        """Join the group, and return when all of its topics' partitions are assigned to somebody."""
        member = cls(await node.connect(), group, member_id)
        await member.client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
        await member.beat(subscribed_topic_names=list(topics))
        with trio.fail_after(ASSIGNMENT_SECONDS):
            while not member.assigned:
                await trio.sleep(0.01)
                await member.beat()
        return member

    async def beat(self, **fields: Any) -> Any:
        named: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
        } | fields
        request = ShareGroupHeartbeatRequest(**named)
        answer = await self.client.call(request, 1)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    def fetch_request(self, *acknowledged: tuple[int, int, int], max_wait_ms: int = 0, **fields: Any) -> Any:
        """A fetch from all assigned partitions; what is acknowledged is of the first."""
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acknowledged
        ]
        topics = [
            FetchTopic(
                topic_id=topic_id,
                partitions=[
                    FetchPartition(partition_index=index, acknowledgement_batches=[] if number else batches)
                    for number, index in enumerate(indexes)
                ],
            )
            for topic_id, indexes in self.assigned.items()
        ]
        settings = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500, **fields}
        return ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            max_wait_ms=max_wait_ms,
            topics=topics,
            **settings,
        )

    async def fetch(self, *acknowledged: tuple[int, int, int], max_wait_ms: int = 0, **fields: Any) -> Any:
        """Fetch; returns the whole answer."""
        request = self.fetch_request(*acknowledged, max_wait_ms=max_wait_ms, **fields)
        answer = await self.client.call(request, 2)
        if not answer.error_code:
            self.session_epoch += 1
        return answer

    async def acquire(self, *acknowledged: tuple[int, int, int], **fields: Any) -> list[tuple[int, int, int]]:
        """Fetch until something is acquired; (first, last, delivery count) of all partitions."""
        with trio.fail_after(ASSIGNMENT_SECONDS):
            while True:
                acquired = acquired_of(await self.fetch(*acknowledged, max_wait_ms=500, **fields))
                if acquired:
                    return acquired

    async def acknowledge(self, first: int, last: int, kind: int = ACCEPT) -> int:
        """Acknowledge offsets of the first assigned partition; the error code of that partition, or of all."""
        topic_id, indexes = next(iter(self.assigned.items()))
        batch = AcknowledgedBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        partition = AcknowledgePartition(partition_index=indexes[0], acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.session_epoch,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
        )
        answer = await self.client.call(request, 2)
        if answer.error_code:
            return int(answer.error_code)
        self.session_epoch += 1
        return int(answer.responses[0].partitions[0].error_code)


def acquired_of(answer: Any) -> list[tuple[int, int, int]]:
    """What an answer says was acquired."""
    assert not answer.error_code
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]
