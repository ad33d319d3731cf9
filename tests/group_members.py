"""Members of share groups and streams groups over a blocking client: what leaves real state behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ottla.client.admin.group_state import Coordinator
from ottla.client.client import Client
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.groups.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from ottla.kproto.messages.groups.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from ottla.kproto.messages.share.share_acknowledge import AcknowledgementBatch as Batch
from ottla.kproto.messages.share.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.kproto.messages.share.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest

PATIENCE_SECONDS = 120
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
ACCEPT, RELEASE, REJECT = 1, 2, 3
_GROUP_RESOURCE = 32


def until(step: Callable[[], Any]) -> Any:
    """The first answer of a step that is one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := step()) is None:
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)
    return found


def begin_early(client: Client, group: str) -> None:
    """Let a share group begin with the first record."""
    configure(client, group, "share.auto.offset.reset", "earliest")


def configure(client: Client, group: str, name: str, value: str) -> None:
    """Set a setting of a group."""
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=_GROUP_RESOURCE, resource_name=group, configs=[config])
    answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == ErrorCode.NONE


class ShareMember:
    """The member of a share group that has all of its partitions. The group begins where its settings say."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self.client, self.group = client, group
        self._coordinator = Coordinator(client, PATIENCE_SECONDS)
        self._epoch = self._session_epoch = 0
        self._assigned: Any = until(lambda: self.beat(subscribed_topic_names=[topic]))

    def beat(self, **fields: Any) -> Any:
        """Heartbeat; what is assigned, None for nothing."""
        named: dict[str, Any] = {"group_id": self.group, "member_id": MEMBER, "member_epoch": self._epoch} | fields
        request = ShareGroupHeartbeatRequest(**named)
        answer = self._coordinator.call(self.group, request, lambda answer: int(answer.error_code))
        assert not answer.error_code, answer.error_message
        self._epoch = answer.member_epoch
        return (answer.assignment and answer.assignment.topic_partitions) or None

    def acquire(self) -> list[tuple[int, int, int]]:
        """Fetch until something is acquired: (first, last, deliveries)."""

        def fetch() -> Any:
            answer = self.client.call(
                ShareFetchRequest(
                    group_id=self.group,
                    member_id=MEMBER,
                    share_session_epoch=self._session_epoch,
                    max_wait_ms=200,
                    min_bytes=1,
                    max_bytes=1 << 20,
                    max_records=500,
                    batch_size=500,
                    topics=[
                        FetchTopic(
                            topic_id=each.topic_id,
                            partitions=[FetchPartition(partition_index=index) for index in each.partitions],
                        )
                        for each in self._assigned
                    ],
                )
            )
            assert not answer.error_code, answer.error_message
            self._session_epoch += 1
            return [
                (each.first_offset, each.last_offset, each.delivery_count)
                for topic in answer.responses
                for partition in topic.partitions
                for each in partition.acquired_records
            ] or None

        found: list[tuple[int, int, int]] = until(fetch)
        return found

    def acknowledge(self, first: int, last: int, kind: int, partition: int = 0) -> None:
        (topic,) = self._assigned
        batch = Batch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        said = AcknowledgePartition(partition_index=partition, acknowledgement_batches=[batch])
        answer = self.client.call(
            ShareAcknowledgeRequest(
                group_id=self.group,
                member_id=MEMBER,
                share_session_epoch=self._session_epoch,
                topics=[AcknowledgeTopic(topic_id=topic.topic_id, partitions=[said])],
            )
        )
        assert not answer.error_code, answer.error_message
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        self._session_epoch += 1

    def leave(self) -> None:
        self._epoch = -1
        self.beat()


class StreamsMember:
    """The member of a streams group with one subtopology, `0`, that reads a topic; returns when its tasks are there."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self.group = group
        self._coordinator = Coordinator(client, PATIENCE_SECONDS)
        changelog = TopicInfo(name=f"{group}-store-changelog")
        part = Subtopology(subtopology_id="0", source_topics=[topic], state_changelog_topics=[changelog])
        joins = {
            "topology": Topology(epoch=0, subtopologies=[part]),
            "rebalance_timeout_ms": 5000,
            "process_id": "p",
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        self._epoch = 0
        self.beat(**joins)
        until(lambda: True if not self.beat(active_tasks=[], standby_tasks=[], warmup_tasks=[]).status else None)

    def describe_topology(self, topic: str) -> None:
        """As Kafka Streams does when it is asked."""
        source = TopologyDescriptionNode(name="in", node_type=1, source_topics=[topic], successors=["count"])
        count = TopologyDescriptionNode(name="count", node_type=2, stores=["store"])
        part = TopologyDescriptionSubtopology(subtopology_id="0", nodes=[source, count])
        request = StreamsGroupTopologyDescriptionUpdateRequest(
            group_id=self.group, member_id=MEMBER, topology_description=TopologyDescription(subtopologies=[part])
        )
        answer = self._coordinator.call(self.group, request, lambda answer: int(answer.error_code))
        assert not answer.error_code, answer.error_message

    def beat(self, **fields: Any) -> Any:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group, member_id=MEMBER, member_epoch=self._epoch, **fields
        )
        answer = self._coordinator.call(self.group, request, lambda answer: int(answer.error_code))
        assert not answer.error_code, answer.error_message
        self._epoch = answer.member_epoch
        return answer

    def leave(self) -> None:
        self._epoch = -1
        self.beat()
