"""The cluster, its features, quotas, leaders, reassignments and folders."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.kproto.messages.cluster.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from ottla.kproto.messages.cluster.unregister_broker import UnregisterBrokerRequest
from ottla.kproto.messages.cluster.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.kproto.messages.configs import alter_client_quotas as alter_quotas
from ottla.kproto.messages.configs import describe_client_quotas as describe_quotas
from ottla.kproto.messages.data.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.kproto.messages.data.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.kproto.messages.data.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.kproto.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.kproto.messages.topics.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.kproto.messages.topics.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.metadata.changes.partition_changes import with_isr, with_leader
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.image import BrokerImage, Endpoint
from ottla.metastore.errors import StoreUnavailableError
from ottla.replica.append import TopicIdPartition
from ottla.replica.delete_records import DeleteRecordsResult
from ottla.replica.unopened import Unopened
from ottla.storage.errors import OffsetOutOfRangeError
from tests.partitions import change_partition


class TestDescribeCluster:
    @pytest.mark.parametrize("version", range(3))
    async def test_brokers_as_the_listener_reaches_them(self, call: Any, broker: Any, version: int) -> None:
        response = await call(DescribeClusterRequest(), version)
        assert response.cluster_id == broker.metadata.cluster_id
        assert response.controller_id == 1
        assert [(it.broker_id, it.host, it.port, it.rack) for it in response.brokers] == [(1, "127.0.0.1", 9092, "r1")]
        assert response.cluster_authorized_operations == -(1 << 31)

    async def test_authorized_operations(self, call: Any) -> None:
        response = await call(DescribeClusterRequest(include_cluster_authorized_operations=True), 2)
        assert response.cluster_authorized_operations == 8096

    @pytest.mark.parametrize(
        ("type_", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
    )
    async def test_other_endpoints(self, call: Any, type_: int, code: ErrorCode) -> None:
        response = await call(DescribeClusterRequest(endpoint_type=type_), 2)
        assert (response.error_code, response.brokers) == (code, [])

    @pytest.mark.parametrize("fenced", [True, False])
    async def test_fenced_brokers_only_where_asked_for(self, call: Any, broker: Any, fenced: bool) -> None:
        gone = BrokerImage(2, (Endpoint("PLAINTEXT", "h", 1),), fenced=True)
        await broker.controller.register_broker(gone)
        response = await call(DescribeClusterRequest(include_fenced_brokers=fenced), 2)
        assert [(it.broker_id, it.is_fenced) for it in response.brokers] == [(1, False), (2, True)][: 1 + fenced]


async def test_a_broker_that_runs_is_not_forgotten(call: Any, broker: Any) -> None:
    await broker.controller.register_broker(BrokerImage(2, (), fenced=True))
    codes = [(await call(UnregisterBrokerRequest(broker_id=node), 0)).error_code for node in (1, 2, 3)]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED]
    assert list(broker.metadata.brokers) == [1]


class TestFeatures:
    async def update(self, call: Any, version: int, *features: tuple[str, int], **options: Any) -> Any:
        keys = [FeatureUpdateKey(feature=name, max_version_level=level, **options) for name, level in features]
        return await call(UpdateFeaturesRequest(feature_updates=keys), version)

    @pytest.mark.parametrize("version", range(3))
    async def test_a_level_goes_down_when_told_so(self, call: Any, broker: Any, version: int) -> None:
        options = {"allow_downgrade": True} if version == 0 else {"upgrade_type": 2}
        response = await self.update(call, version, ("transaction.version", 1), **options)
        assert response.error_code == ErrorCode.NONE
        assert broker.metadata.features["transaction.version"] == 1

    async def test_all_or_none(self, call: Any, broker: Any) -> None:
        before = broker.metadata.features
        for version in (1, 2):
            response = await self.update(call, version, ("share.version", 0), ("nope", 1), upgrade_type=2)
            assert (response.error_code, response.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
            assert response.error_message.endswith(
                "for feature nope. Local controller 1 does not support this feature."
            )
        assert broker.metadata.features == before


class TestQuotas:
    async def alter(self, call: Any, entity: dict[str, str | None], version: int = 1, **ops: float | None) -> Any:
        entry = alter_quotas.EntryData(
            entity=[alter_quotas.EntityData(entity_type=type_, entity_name=name) for type_, name in entity.items()],
            ops=[alter_quotas.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
        )
        (result,) = (await call(alter_quotas.AlterClientQuotasRequest(entries=[entry]), version)).entries
        return result

    async def describe(self, call: Any, *parts: tuple[str, int, str | None], strict: bool = False) -> Any:
        components = [
            describe_quotas.ComponentData(entity_type=type_, match_type=match, match=name)
            for type_, match, name in parts
        ]
        return await call(describe_quotas.DescribeClientQuotasRequest(components=components, strict=strict), 1)

    @pytest.mark.parametrize("version", range(2))
    async def test_set_and_remove(self, call: Any, broker: Any, version: int) -> None:
        result = await self.alter(call, {"user": "ann"}, version, producer_byte_rate=1024.0)
        assert result.error_code == ErrorCode.NONE
        assert [(it.entity_type, it.entity_name) for it in result.entity] == [("user", "ann")]
        assert broker.metadata.quotas == {(("user", "ann"),): {"producer_byte_rate": 1024.0}}
        await self.alter(call, {"user": "ann"}, version, producer_byte_rate=None)
        assert broker.metadata.quotas == {}

    @pytest.mark.parametrize("second", [{}, {"producer_byte_rate": 2.0}])
    async def test_of_an_entity_that_is_named_twice_the_first_entry_counts(
        self, call: Any, broker: Any, second: dict[str, float]
    ) -> None:
        """As in Kafka, which says all the same that the request is invalid."""
        entity = [alter_quotas.EntityData(entity_type="user", entity_name="ann")]
        entries = [
            alter_quotas.EntryData(
                entity=entity, ops=[alter_quotas.OpData(key=key, value=value) for key, value in ops.items()]
            )
            for ops in ({"consumer_byte_rate": 1.0}, second)
        ]
        (result,) = (await call(alter_quotas.AlterClientQuotasRequest(entries=entries), 1)).entries
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert broker.metadata.quotas == {(("user", "ann"),): {"consumer_byte_rate": 1.0}}

    async def test_filters(self, call: Any) -> None:
        await self.alter(call, {"user": "ann"}, producer_byte_rate=1.0)
        await self.alter(call, {"user": None}, producer_byte_rate=2.0)
        await self.alter(call, {"user": "ann", "client-id": "c"}, producer_byte_rate=3.0)

        async def found(*parts: tuple[str, int, str | None], strict: bool = False) -> list[float]:
            response = await self.describe(call, *parts, strict=strict)
            return sorted(value.value for entry in response.entries for value in entry.values)

        assert await found() == [1.0, 2.0, 3.0]
        assert await found(("user", 0, "ann")) == [1.0, 3.0]
        assert await found(("user", 0, "ann"), strict=True) == [1.0]
        assert await found(("user", 1, None)) == [2.0]
        assert await found(("user", 2, None), ("client-id", 2, None)) == [3.0]
        assert await found(("user", 0, "nobody")) == []

    async def test_an_unknown_type_of_entity(self, call: Any) -> None:
        response = await self.describe(call, ("tribe", 2, None))
        assert (response.error_code, response.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)

    @pytest.mark.parametrize(
        "parts",
        [
            [("user", 0, None)],
            [("user", 1, "x")],
            [("user", 9, None)],
            [("user", 2, None), ("user", 2, None)],
            [("user", 2, None), ("ip", 2, None)],
        ],
    )
    async def test_wrong_filters(self, call: Any, parts: list[tuple[str, int, str | None]]) -> None:
        response = await self.describe(call, *parts)
        assert (response.error_code, response.entries) == (ErrorCode.INVALID_REQUEST, None)


async def unreachable(*_: object) -> None:
    raise StoreUnavailableError("The metadata store cannot be reached.")


class TestElections:
    async def elect(self, call: Any, version: int, partitions: list[int] | None, election_type: int = 0) -> Any:
        asked = None if partitions is None else [TopicPartitions(topic="t", partitions=partitions)]
        request = ElectLeadersRequest(election_type=election_type, topic_partitions=asked)
        return await call(request, version)

    @pytest.mark.parametrize("version", range(3))
    async def test_what_leads_needs_no_election(self, call: Any, broker: Any, version: int) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        response = await self.elect(call, version, [0, 5])
        assert [it.error_code for it in response.replica_election_results[0].partition_result] == [
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        (everything,) = (await self.elect(call, version, None)).replica_election_results
        assert (everything.topic, everything.partition_result) == ("t", [])

    @pytest.mark.parametrize("election_type", [0, 1])
    async def test_a_partition_without_a_leader_gets_one(self, call: Any, broker: Any, election_type: int) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        await change_partition(broker.controller, "t", 0, lambda state: with_leader(state, -1))
        response = await self.elect(call, 2, None, election_type)
        assert [it.error_code for it in response.replica_election_results[0].partition_result] == [ErrorCode.NONE]
        assert (broker.metadata.partition("t", 0).leader, broker.metadata.partition("t", 0).leader_epoch) == (1, 2)

    async def test_while_the_metadata_store_cannot_be_reached(
        self, call: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        monkeypatch.setattr(broker.controller, "change_partitions", unreachable)
        response = await self.elect(call, 2, [0])
        (result,) = response.replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT

    async def test_an_unknown_kind(self, call: Any) -> None:
        assert (await self.elect(call, 2, [0], election_type=7)).error_code == ErrorCode.INVALID_REQUEST


class TestReassignments:
    async def reassign(self, call: Any, replicas: list[int] | None, version: int = 1, **options: Any) -> ErrorCode:
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=[partition])], **options
        )
        response = await call(request, version)
        return ErrorCode(response.responses[0].partitions[0].error_code)

    @pytest.mark.parametrize("version", range(2))
    async def test_on_one_node_there_is_nowhere_to_go(self, call: Any, broker: Any, version: int) -> None:
        assert await self.reassign(call, [1], version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        assert await self.reassign(call, [1], version) == ErrorCode.NONE
        assert await self.reassign(call, [2], version) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await self.reassign(call, None, version) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    async def test_a_move_lasts_until_the_new_replica_is_in_sync(self, call: Any, broker: Any) -> None:
        await broker.controller.register_broker(BrokerImage(2, (Endpoint("PLAINTEXT", "h", 1),)))
        await broker.controller.create_topic(NewTopic("t", assignments={0: [1]}))
        assert await self.reassign(call, [2]) == ErrorCode.NONE
        for topics in (None, [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 3])]):
            response = await call(ListPartitionReassignmentsRequest(topics=topics), 0)
            (ongoing,) = response.topics[0].partitions
            assert (ongoing.replicas, ongoing.adding_replicas, ongoing.removing_replicas) == ([2, 1], [2], [1])
        state = await change_partition(broker.controller, "t", 0, lambda state: with_isr(state, (1, 2)))
        assert (state.leader, state.replicas, state.isr, state.leader_epoch) == (2, (2,), (2,), 1)
        assert (await call(ListPartitionReassignmentsRequest(topics=None), 0)).topics == []

    async def test_a_move_is_taken_back(self, call: Any, broker: Any) -> None:
        await broker.controller.register_broker(BrokerImage(2, (Endpoint("PLAINTEXT", "h", 1),)))
        await broker.controller.create_topic(NewTopic("t", assignments={0: [1]}))
        await self.reassign(call, [2])
        assert await self.reassign(call, None) == ErrorCode.NONE
        state = broker.metadata.partition("t", 0)
        assert (state.replicas, state.adding_replicas, state.removing_replicas, state.leader) == ((1,), (), (), 1)

    async def test_while_the_metadata_store_cannot_be_reached(
        self, call: Any, broker: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        monkeypatch.setattr(broker.controller, "change_partitions", unreachable)
        assert await self.reassign(call, [1]) == ErrorCode.REQUEST_TIMED_OUT

    async def test_the_number_of_replicas_may_be_kept(self, call: Any, broker: Any) -> None:
        await broker.controller.register_broker(BrokerImage(2, (Endpoint("PLAINTEXT", "h", 1),)))
        await broker.controller.create_topic(NewTopic("t", assignments={0: [1]}))
        code = await self.reassign(call, [1, 2], allow_replication_factor_change=False)
        assert code == ErrorCode.INVALID_REPLICATION_FACTOR

    @pytest.mark.parametrize("replicas", [[1, 1], [1, 9], []])
    async def test_whether_replicas_are_in_order_comes_before_their_number(
        self, call: Any, broker: Any, replicas: list[int]
    ) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))
        code = await self.reassign(call, replicas, allow_replication_factor_change=False)
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("version", range(3))
async def test_the_quorum_is_the_brokers(call: Any, version: int) -> None:
    topics = [
        TopicData(topic_name=name, partitions=[PartitionData(partition_index=0)])
        for name in ("__cluster_metadata", "t")
    ]
    response = await call(DescribeQuorumRequest(topics=topics), version)
    metadata, other = (topic.partitions[0] for topic in response.topics)
    assert (metadata.error_code, metadata.leader_id, [it.replica_id for it in metadata.current_voters]) == (0, 1, [1])
    assert metadata.current_voters[0].log_end_offset == metadata.high_watermark > 0
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class FakeReplicaManager:
    """Two partitions, and what was asked to be deleted."""

    def __init__(self, topic_id: UUID) -> None:
        self.topic_id = topic_id
        self.asked: dict[TopicIdPartition, int] = {}
        self.unopened = Unopened()

    def partitions(self) -> list[Any]:
        log = SimpleNamespace(size_bytes=100, high_watermark=5, log_end_offset=5)
        return [SimpleNamespace(topic="t", index=index, log=log) for index in range(2)]

    async def delete_records(
        self, offsets: dict[TopicIdPartition, int], *, timeout_ms: int
    ) -> dict[TopicIdPartition, DeleteRecordsResult]:
        self.asked = offsets
        failed = DeleteRecordsResult(OffsetOutOfRangeError(99, 0, 5))
        return {
            key: failed if key.partition else DeleteRecordsResult(None, low_watermark=offset)
            for key, offset in offsets.items()
        }


class TestLogDirs:
    @pytest.fixture
    def static(self, tmp_path: Path) -> dict[str, str]:
        return {"log.dirs": str(tmp_path)}

    @pytest.mark.parametrize("version", range(1, 6))
    async def test_sizes_of_the_partitions_asked_for(
        self, call: Any, broker: Any, tmp_path: Path, version: int
    ) -> None:
        broker.replica_manager = FakeReplicaManager(UUID(int=1))
        (result,) = (await call(DescribeLogDirsRequest(topics=None), version)).results
        assert result.log_dir == str(tmp_path)
        assert [(it.partition_index, it.partition_size, it.offset_lag) for it in result.topics[0].partitions] == [
            (0, 100, 0),
            (1, 100, 0),
        ]
        if version >= 4:
            assert result.total_bytes >= result.usable_bytes > 0
        asked = [DescribableLogDirTopic(topic="t", partitions=[1, 9])]
        (result,) = (await call(DescribeLogDirsRequest(topics=asked), version)).results
        assert [it.partition_index for it in result.topics[0].partitions] == [1]

    @pytest.mark.parametrize("version", [1, 2])
    async def test_nothing_moves_to_another_folder(self, call: Any, broker: Any, tmp_path: Path, version: int) -> None:
        await broker.controller.create_topic(NewTopic("t", 1, 1))

        async def move(path: str, partition: int) -> int:
            topic = AlterReplicaLogDirTopic(name="t", partitions=[partition])
            request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
            return (await call(request, version)).results[0].partitions[0].error_code  # type: ignore[no-any-return]

        assert await move(str(tmp_path), 0) == ErrorCode.NONE
        assert await move("/elsewhere", 0) == ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(str(tmp_path), 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
async def test_records_are_deleted_by_topic_id_and_answered_by_name(call: Any, broker: Any, version: int) -> None:
    created = await broker.controller.create_topic(NewTopic("t", 2, 1))
    manager = broker.replica_manager = FakeReplicaManager(created.topic_id)
    topics = [
        DeleteRecordsTopic(
            name=name,
            partitions=[
                DeleteRecordsPartition(partition_index=0, offset=3),
                DeleteRecordsPartition(partition_index=1, offset=99),
            ],
        )
        for name in ("t", "absent")
    ]
    response = await call(DeleteRecordsRequest(topics=topics, timeout_ms=100), version)
    found = {
        topic.name: [(it.partition_index, it.low_watermark, ErrorCode(it.error_code)) for it in topic.partitions]
        for topic in response.topics
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {
        "t": [(0, 3, ErrorCode.NONE), (1, -1, ErrorCode.OFFSET_OUT_OF_RANGE)],
        "absent": [(0, -1, unknown), (1, -1, unknown)],
    }
    assert manager.asked == {TopicIdPartition(created.topic_id, 0): 3, TopicIdPartition(created.topic_id, 1): 99}
