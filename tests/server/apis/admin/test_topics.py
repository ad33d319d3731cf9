"""Metadata and the APIs that make and unmake topics, in every version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.kproto.messages.topics.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.kproto.messages.topics.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.metadata.changes.partition_changes import with_leader
from ottla.metadata.changes.topic_changes import NewTopic
from tests.partitions import change_partition

ALL_METADATA = range(14)


def topics(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


class TestMetadata:
    @pytest.mark.parametrize("version", ALL_METADATA)
    async def test_a_topic_with_its_leaders_and_the_brokers(self, call: Any, broker: Any, version: int) -> None:
        created = await broker.controller.create_topic(NewTopic("t", 2, 1))
        response = await call(MetadataRequest(topics=topics("t")), version)
        (node,) = response.brokers
        assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", 9092)
        (topic,) = response.topics
        assert (topic.error_code, topic.name) == (ErrorCode.NONE, "t")
        assert [(it.partition_index, it.leader_id, it.isr_nodes) for it in topic.partitions] == [
            (0, 1, [1]),
            (1, 1, [1]),
        ]
        if version >= 1:
            assert (response.controller_id, node.rack) == (1, "r1")
        if version >= 2:
            assert response.cluster_id == broker.metadata.cluster_id
        if version >= 7:
            assert [it.leader_epoch for it in topic.partitions] == [0, 0]
        if version >= 10:
            assert topic.topic_id == created.topic_id != UUID(int=0)

    @pytest.mark.parametrize("version", ALL_METADATA)
    async def test_all_topics_and_none(self, call: Any, broker: Any, version: int) -> None:
        await broker.controller.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)])
        everything = MetadataRequest(topics=[] if version == 0 else None)
        assert sorted(it.name for it in (await call(everything, version)).topics) == ["a", "b"]
        if version > 0:
            assert (await call(MetadataRequest(topics=[]), version)).topics == []

    @pytest.mark.parametrize("version", ALL_METADATA)
    async def test_an_absent_topic_is_created_and_answered_at_once(self, call: Any, broker: Any, version: int) -> None:
        response = await call(MetadataRequest(topics=topics("new")), version)
        (topic,) = response.topics
        assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 1)
        assert broker.metadata.topic("new") is not None

    @pytest.mark.parametrize("version", range(4, 14))
    async def test_not_where_the_request_forbids_it(self, call: Any, broker: Any, version: int) -> None:
        response = await call(MetadataRequest(topics=topics("new"), allow_auto_topic_creation=False), version)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.metadata.topic("new") is None

    @pytest.mark.parametrize("allow", [True, False])
    async def test_a_bad_name_is_told_and_leaves_the_others_alone(self, call: Any, allow: bool) -> None:
        request = MetadataRequest(topics=topics("bad name", "good"), allow_auto_topic_creation=allow)
        bad, good = (await call(request, 12)).topics
        assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert good.error_code == (ErrorCode.NONE if allow else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def test_internal_topics_are_created_with_their_own_settings(self, call: Any) -> None:
        (topic,) = (await call(MetadataRequest(topics=topics("__consumer_offsets")), 12)).topics
        assert (topic.is_internal, len(topic.partitions)) == (True, 50)

    @pytest.mark.parametrize("version", [12, 13])
    async def test_topics_by_id(self, call: Any, broker: Any, version: int) -> None:
        created = await broker.controller.create_topic(NewTopic("t", 1, 1))
        asked = [MetadataRequestTopic(topic_id=it, name=None) for it in (created.topic_id, UUID(int=99))]
        known, unknown = (await call(MetadataRequest(topics=asked), version)).topics
        assert (known.error_code, known.name) == (ErrorCode.NONE, "t")
        assert (unknown.error_code, unknown.name, unknown.topic_id) == (
            ErrorCode.UNKNOWN_TOPIC_ID,
            None,
            UUID(int=99),
        )

    @pytest.mark.parametrize("version", [10, 11])
    async def test_topic_ids_before_version_12_are_refused(self, call: Any, version: int) -> None:
        asked = [MetadataRequestTopic(topic_id=UUID(int=99), name="t")]
        (topic,) = (await call(MetadataRequest(topics=asked), version)).topics
        assert topic.error_code == ErrorCode.INVALID_REQUEST

    async def test_a_recreated_topic_has_a_new_id(self, call: Any, broker: Any) -> None:
        first = (await call(MetadataRequest(topics=topics("t")), 12)).topics[0].topic_id
        await broker.controller.delete_topics([first])
        second = (await call(MetadataRequest(topics=topics("t")), 12)).topics[0].topic_id
        assert second != first

    @pytest.mark.parametrize(
        ("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)]
    )
    async def test_a_leader_without_the_listener(self, call: Any, broker: Any, version: int, code: ErrorCode) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        response = await call(MetadataRequest(topics=topics("t")), version, listener="OTHER")
        (partition,) = response.topics[0].partitions
        assert (response.brokers, partition.error_code, partition.leader_id) == ([], code, -1)

    async def test_a_partition_without_a_leader(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        await change_partition(broker.controller, "t", 0, lambda state: with_leader(state, -1))
        (partition,) = (await call(MetadataRequest(topics=topics("t")), 12)).topics[0].partitions
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (
            ErrorCode.LEADER_NOT_AVAILABLE,
            -1,
            1,
        )

    @pytest.mark.parametrize("version", [8, 10, 13])
    async def test_authorized_operations_only_where_asked(self, call: Any, version: int) -> None:
        asked = MetadataRequest(topics=topics("t"), include_topic_authorized_operations=True)
        assert (await call(asked, version)).topics[0].topic_authorized_operations == 3576
        unasked = MetadataRequest(topics=topics("t"))
        assert (await call(unasked, version)).topics[0].topic_authorized_operations == -(1 << 31)

    @pytest.mark.parametrize("allow", [True, False])
    async def test_authorized_operations_of_topics_that_there_are_not(self, call: Any, allow: bool) -> None:
        asked = [*topics("bad name"), MetadataRequestTopic(topic_id=UUID(int=99), name=None)]
        asked += [] if allow else topics("absent")
        request = MetadataRequest(
            topics=asked, allow_auto_topic_creation=allow, include_topic_authorized_operations=True
        )
        told = {it.name: it.topic_authorized_operations for it in (await call(request, 13)).topics}
        assert told == {"bad name": 3576, None: -(1 << 31)} | ({} if allow else {"absent": 3576})


class TestWithoutAutoCreation:
    @pytest.fixture
    def static(self) -> dict[str, str]:
        return {"auto.create.topics.enable": "false"}

    async def test_the_config_forbids_it(self, call: Any, broker: Any) -> None:
        (topic,) = (await call(MetadataRequest(topics=topics("new")), 12)).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert broker.metadata.topic("new") is None


class TestCreateTopics:
    @pytest.mark.parametrize("version", range(2, 8))
    async def test_create_with_configs(self, call: Any, broker: Any, version: int) -> None:
        asked = CreatableTopic(
            name="t",
            num_partitions=3,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value="5")],
        )
        (result,) = (await call(CreateTopicsRequest(topics=[asked]), version)).topics
        assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
        topic = broker.metadata.topic("t")
        assert (len(topic.partitions), topic.configs) == (3, {"retention.ms": "5"})
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            configs = {it.name: (it.value, it.config_source) for it in result.configs}
            assert len(configs) >= 20
            assert configs["retention.ms"] == ("5", 1)
            assert configs["segment.bytes"] == ("1073741824", 5)
        if version >= 7:
            assert result.topic_id == topic.topic_id

    @pytest.mark.parametrize("version", range(4, 8))
    async def test_minus_one_is_the_brokers_default(self, call: Any, broker: Any, version: int) -> None:
        asked = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)
        (result,) = (await call(CreateTopicsRequest(topics=[asked]), version)).topics
        assert result.error_code == ErrorCode.NONE
        assert len(broker.metadata.topic("t").partitions) == 1

    @pytest.mark.parametrize("version", range(2, 8))
    async def test_validate_only(self, call: Any, broker: Any, version: int) -> None:
        asked = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        (result,) = (await call(CreateTopicsRequest(topics=[asked], validate_only=True), version)).topics
        assert result.error_code == ErrorCode.NONE
        assert broker.metadata.topic("t") is None

    async def test_each_topic_is_answered_for_itself(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("exists", 1, 1))
        asked = [
            CreatableTopic(name="exists", num_partitions=1, replication_factor=1),
            CreatableTopic(name="twice", num_partitions=1, replication_factor=1),
            CreatableTopic(name="twice", num_partitions=1, replication_factor=1),
            CreatableTopic(name="three copies", num_partitions=1, replication_factor=3),
            CreatableTopic(name="copies", num_partitions=1, replication_factor=3),
            CreatableTopic(name="good", num_partitions=1, replication_factor=1),
            CreatableTopic(
                name="assigned",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2,
            ),
        ]
        results = (await call(CreateTopicsRequest(topics=asked), 7)).topics
        assert [(it.name, ErrorCode(it.error_code)) for it in results] == [
            ("exists", ErrorCode.TOPIC_ALREADY_EXISTS),
            ("twice", ErrorCode.INVALID_REQUEST),
            ("three copies", ErrorCode.INVALID_TOPIC_EXCEPTION),
            ("copies", ErrorCode.INVALID_REPLICATION_FACTOR),
            ("good", ErrorCode.NONE),
            ("assigned", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ]
        assert results[0].error_message == "Topic 'exists' already exists."

    async def test_a_wrong_config_is_named(self, call: Any) -> None:
        wrong = [CreatableTopicConfig(name="segment.bytes", value="14")]
        asked = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=wrong)
        (result,) = (await call(CreateTopicsRequest(topics=[asked]), 7)).topics
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert result.error_message == (
            "Invalid value 14 for configuration segment.bytes: Value must be at least 1048576"
        )


class TestDeleteTopics:
    @pytest.mark.parametrize("version", range(1, 6))
    async def test_by_name(self, call: Any, broker: Any, version: int) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        gone, absent = (await call(DeleteTopicsRequest(topic_names=["t", "absent"]), version)).responses
        assert (gone.name, gone.error_code) == ("t", ErrorCode.NONE)
        assert (absent.name, absent.error_code) == ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert broker.metadata.topic("t") is None

    async def test_by_name_or_id(self, call: Any, broker: Any) -> None:
        first = await broker.controller.create_topic(NewTopic("first", 1, 1))
        second = await broker.controller.create_topic(NewTopic("second", 1, 1))
        asked = [
            DeleteTopicState(name=None, topic_id=first.topic_id),
            DeleteTopicState(name="second"),
            DeleteTopicState(name=None, topic_id=UUID(int=9)),
            DeleteTopicState(name="both", topic_id=UUID(int=10)),
            DeleteTopicState(name=None),
            DeleteTopicState(name="twice"),
            DeleteTopicState(name="twice"),
        ]
        results = (await call(DeleteTopicsRequest(topics=asked), 6)).responses
        assert [ErrorCode(it.error_code) for it in results] == [
            ErrorCode.NONE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]
        assert (results[0].name, results[0].topic_id) == ("first", first.topic_id)
        assert (results[1].name, results[1].topic_id) == ("second", second.topic_id)
        assert len(broker.metadata.topics) == 0


class TestDeletionDisabled:
    @pytest.fixture
    def static(self) -> dict[str, str]:
        return {"delete.topic.enable": "false"}

    @pytest.mark.parametrize(
        ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
    )
    async def test_nothing_is_deleted(self, call: Any, broker: Any, version: int, code: ErrorCode) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        (result,) = (await call(DeleteTopicsRequest(topic_names=["t"]), version)).responses
        assert result.error_code == code
        assert broker.metadata.topic("t") is not None


class TestCreatePartitions:
    @pytest.mark.parametrize("version", range(4))
    async def test_each_topic_is_answered_for_itself(self, call: Any, broker: Any, version: int) -> None:
        await broker.controller.create_topic(NewTopic("t", 2, 1))
        await broker.controller.create_topic(NewTopic("u", 2, 1))
        asked = [
            CreatePartitionsTopic(name="t", count=4, assignments=None),
            CreatePartitionsTopic(name="u", count=3, assignments=[CreatePartitionsAssignment(broker_ids=[7])]),
            CreatePartitionsTopic(name="absent", count=3, assignments=None),
        ]
        results = (await call(CreatePartitionsRequest(topics=asked), version)).results
        assert [(it.name, ErrorCode(it.error_code)) for it in results] == [
            ("t", ErrorCode.NONE),
            ("u", ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert len(broker.metadata.topic("t").partitions) == 4

    async def test_fewer_or_as_many_is_refused(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 2, 1))
        for count in (1, 2):
            asked = [CreatePartitionsTopic(name="t", count=count, assignments=None)]
            (result,) = (await call(CreatePartitionsRequest(topics=asked), 3)).results
            assert result.error_code == ErrorCode.INVALID_PARTITIONS

    async def test_validate_only(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 2, 1))
        asked = [CreatePartitionsTopic(name="t", count=3, assignments=None)]
        (result,) = (await call(CreatePartitionsRequest(topics=asked, validate_only=True), 3)).results
        assert result.error_code == ErrorCode.NONE
        assert len(broker.metadata.topic("t").partitions) == 2


class TestDescribeTopicPartitions:
    async def test_pages_cover_everything_once_in_order(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("b", 3, 1), NewTopic("a", 2, 1), NewTopic("c", 1, 1)])
        seen = []
        cursor = None
        for _ in range(10):
            request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2, cursor=cursor)
            response = await call(request, 0)
            seen += [(topic.name, it.partition_index) for topic in response.topics for it in topic.partitions]
            cursor = response.next_cursor
            if cursor is None:
                break
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]

    async def test_lists_of_eligible_leaders_are_empty_and_never_null(self, call: Any, broker: Any) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
        (partition,) = (await call(request, 0)).topics[0].partitions
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
        assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])

    async def test_unknown_and_bad_names(self, call: Any) -> None:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="absent"), TopicRequest(name="bad name")])
        response = await call(request, 0)
        assert [(it.name, ErrorCode(it.error_code)) for it in response.topics] == [
            ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ]

    async def test_a_negative_cursor_is_refused(self, call: Any) -> None:
        cursor = Cursor(topic_name="t", partition_index=-1)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], cursor=cursor)
        assert (await call(request, 0)).topics[0].error_code == ErrorCode.INVALID_REQUEST
