"""What one node did alone is done by all: topics, configs, quotas, coordinators and hints, whichever node is asked."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.unregister_broker import UnregisterBrokerRequest
from ottla.kproto.messages.configs.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.records import Record, build_batch
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.image import ResourceType
from ottla.metadata.internal_topics import CONSUMER_OFFSETS
from tests.clusters import RunCluster
from tests.server.cluster.producers import GROUP, Router, committed_offset, key_at

NODES = (1, 2, 3)
BATCH = build_batch([Record(value=b"v", timestamp_ms=1_700_000_000_000)])


def create(*names: str, partitions: int = 3) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    )


def produce(topic_id: UUID, partition: int) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(bytearray(BATCH)))
    return ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])]
    )


def commit(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])])


def find(key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=[key], key_type=GROUP)


async def leaders(router: Router, node_id: int, topic: str) -> list[int]:
    """The leaders of a topic's partitions as a node tells them, -1 where there is none."""
    response = await router.call(node_id, MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 13)
    return [it.leader_id for it in sorted(response.topics[0].partitions, key=lambda it: it.partition_index)]


async def test_topics_are_changed_at_any_node_and_known_at_all(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        router = Router(cluster)
        created = await router.call(1, create("t"), 7)
        assert created.topics[0].error_code == ErrorCode.NONE
        assert sorted(await leaders(router, 1, "t")) == [1, 2, 3]
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=6, assignments=None)], timeout_ms=10_000
        )
        assert (await router.call(2, more, 3)).results[0].error_code == ErrorCode.NONE
        grown = await leaders(router, 2, "t")
        assert Counter(grown) == {1: 2, 2: 2, 3: 2}
        await cluster.until(lambda image: image.partition("t", 5) is not None)
        assert [await leaders(router, node_id, "t") for node_id in NODES] == [grown] * 3
        for partition, leader in enumerate(grown):
            response = await router.call(leader, produce(created.topics[0].topic_id, partition), 13)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
        assert (await router.call(3, doomed, 6)).responses[0].error_code == ErrorCode.NONE
        await cluster.until(lambda image: image.topic("t") is None)


async def test_what_one_node_has_done_another_knows_when_it_is_asked_for_changes(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        router = Router(cluster)
        doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
        for node_id in NODES * 3:
            assert (await router.call(1, create("t"), 7)).topics[0].error_code == ErrorCode.NONE
            assert (await router.call(node_id, doomed, 6)).responses[0].error_code == ErrorCode.NONE
            assert (await router.call(1, doomed, 6)).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_node_that_does_not_reach_the_metadata_refuses_nothing_by_what_it_knew(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        router = Router(cluster)
        cluster[3].store.is_cut_off = True
        assert (await router.call(1, create("t"), 7)).topics[0].error_code == ErrorCode.NONE
        doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=10_000)
        assert (await router.call(3, doomed, 6)).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        cluster[3].store.is_cut_off = False
        code = ErrorCode.REQUEST_TIMED_OUT
        while code == ErrorCode.REQUEST_TIMED_OUT:  # until it looks at the store again
            code = ErrorCode((await router.call(3, doomed, 6)).responses[0].error_code)
        assert code == ErrorCode.NONE


async def test_of_many_that_create_topics_at_all_nodes_each_gets_its_answer(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        codes: list[tuple[str, ErrorCode]] = []

        async def create_at(node_id: int, name: str) -> None:
            client = await cluster.connect(node_id)
            response = await client.call(create(name), 7)
            codes.append((name, ErrorCode(response.topics[0].error_code)))

        async with trio.open_nursery() as nursery:
            for node_id in NODES:
                nursery.start_soon(create_at, node_id, "same")
                for number in range(3):
                    nursery.start_soon(create_at, node_id, f"own-{node_id}-{number}")
        of_same = Counter(code for name, code in codes if name == "same")
        assert of_same == {ErrorCode.NONE: 1, ErrorCode.TOPIC_ALREADY_EXISTS: 2}
        assert {code for name, code in codes if name != "same"} == {ErrorCode.NONE}
        await cluster.until(lambda image: len(image.topics) == 10)


async def test_configs_and_quotas_reach_every_node(run_cluster: RunCluster) -> None:
    def describe(name: str) -> DescribeConfigsRequest:
        asked = DescribeConfigsResource(
            resource_type=ResourceType.BROKER, resource_name=name, configuration_keys=["log.retention.ms"]
        )
        return DescribeConfigsRequest(resources=[asked])

    def alter(name: str, value: str) -> IncrementalAlterConfigsRequest:
        config = AlterableConfig(name="log.retention.ms", value=value)
        resource = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name=name, configs=[config])
        return IncrementalAlterConfigsRequest(resources=[resource])

    async with run_cluster() as cluster:
        router = Router(cluster)
        for node_id, name, value in ((1, "", "1000"), (2, "2", "2000")):
            response = await router.call(node_id, alter(name, value), 1)
            assert response.responses[0].error_code == ErrorCode.NONE
        await cluster.until(lambda image: len(image.configs) == 2)
        told = [(await router.call(it, describe(str(it)), 4)).results[0].configs[0].value for it in NODES]
        assert told == ["1000", "2000", "1000"]
        # As at a Kafka broker, only the broker itself knows its own.
        assert (await router.call(1, describe("2"), 4)).results[0].error_code == ErrorCode.INVALID_REQUEST
        assert (await router.call(1, alter("2", "1"), 1)).responses[0].error_code == ErrorCode.INVALID_REQUEST

        quota = EntryData(
            entity=[EntityData(entity_type="client-id", entity_name="test")],
            ops=[OpData(key="producer_byte_rate", value=1024.0)],
        )
        assert (await router.call(3, AlterClientQuotasRequest(entries=[quota]), 1)).entries[0].error_code == 0
        await cluster.until(lambda image: len(image.quotas) == 1)


async def test_coordinators_are_spread_and_found_alike_by_all(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        router = Router(cluster)
        groups = [f"g{number}" for number in range(12)]
        await cluster[1].broker.controller.create_topic(NewTopic("t", 1, 1))
        at = {group: await router.coordinator(group, GROUP) for group in groups}
        assert set(at.values()) == set(NODES)
        await cluster.until(lambda image: image.topic(CONSUMER_OFFSETS) is not None)
        for node_id in NODES:
            for group in groups:
                assert (await router.call(node_id, find(group), 6)).coordinators[0].node_id == at[group]
                answer = await router.call(node_id, commit(group, "t", 7), 9)
                code = answer.topics[0].partitions[0].error_code
                assert (code == ErrorCode.NOT_COORDINATOR) == (node_id != at[group])
        for group in groups:
            while True:
                answer = await router.call(at[group], commit(group, "t", 7), 9)
                if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
                    break
                await trio.sleep(0.01)
        for node_id in NODES:
            listed = {it.group_id for it in (await router.call(node_id, ListGroupsRequest(), 5)).groups}
            assert listed == {group for group in groups if at[group] == node_id}


async def test_producer_ids_are_given_once(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        router = Router(cluster)
        request = InitProducerIdRequest(transactional_id=None)
        given = [(await router.call(node_id, request, 5)).producer_id for node_id in NODES * 2]
        assert len(set(given)) == 6


async def test_who_asks_the_wrong_node_is_told_where_the_leader_is(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        router = Router(cluster)
        topic = await cluster[1].broker.controller.create_topic(NewTopic("t", assignments={0: [2]}))
        response = await router.call(1, produce(topic.topic_id, 0), 13)
        answer = response.responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        epoch = topic.partitions[0].leader_epoch
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, epoch)
        assert [(it.node_id, it.port) for it in response.node_endpoints] == [(2, cluster[2].port)]


async def test_what_is_led_by_nobody_alive_is_found_again_when_it_is(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        router = Router(cluster)
        await cluster[1].broker.controller.create_topic(NewTopic("t", assignments={0: [3], 1: [1]}))
        group = await key_at(router, 3, GROUP)
        await _commit(router, group, 5)
        await cluster.kill(3)
        await cluster.until(lambda image: image.brokers[3].fenced)
        assert await leaders(router, 1, "t") == [-1, 1]
        assert (await router.call(1, find(group), 6)).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        refused = await router.call(1, UnregisterBrokerRequest(broker_id=2), 0)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        await cluster.start(3)
        assert await committed_offset(router, group, "t") == 5
        await cluster.until(lambda image: image.topics["t"].partitions[0].leader == 3)
        assert await leaders(router, 1, "t") == [3, 1]


async def test_without_the_store_what_there_is_goes_on(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        router = Router(cluster)
        topic = await cluster[1].broker.controller.create_topic(NewTopic("t", assignments={0: [1], 1: [2]}))
        await cluster.until(lambda image: image.topic("t") is not None)
        group = await key_at(router, 2, GROUP)
        await _commit(router, group, 1)
        for node in cluster.nodes.values():
            node.store.is_cut_off = True
        for partition, node_id in enumerate((1, 2)):
            response = await router.call(node_id, produce(topic.topic_id, partition), 13)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        await _commit(router, group, 2)
        assert await committed_offset(router, group, "t") == 2
        assert (await router.call(2, create("new"), 7)).topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        for node in cluster.nodes.values():
            node.store.is_cut_off = False
        code = ErrorCode.REQUEST_TIMED_OUT
        while code is ErrorCode.REQUEST_TIMED_OUT:  # it may be made before the node follows the store again
            code = ErrorCode((await router.call(2, create("new"), 7)).topics[0].error_code)
        assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        await cluster.until(lambda image: image.topic("new") is not None)


async def test_a_leader_that_alone_is_cut_off_from_the_store_serves_on(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        router = Router(cluster)
        topic = await cluster[1].broker.controller.create_topic(NewTopic("t", assignments={0: [2]}))
        await cluster.until(lambda image: image.topic("t") is not None)
        group = await key_at(router, 2, GROUP)
        await _commit(router, group, 1)
        cluster[2].store.is_cut_off = True
        await cluster.until(lambda image: image.brokers[2].fenced and image.topics["t"].partitions[0].leader < 0, 1, 3)
        for _ in range(3):
            response = await router.call(2, produce(topic.topic_id, 0), 13)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        answer = await router.call(2, commit(group, "t", 3), 9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        cluster[2].store.is_cut_off = False
        await cluster.until(lambda image: not image.brokers[2].fenced and image.topics["t"].partitions[0].leader == 2)
        assert await committed_offset(router, group, "t") == 3
        response = await router.call(2, produce(topic.topic_id, 0), 13)
        assert response.responses[0].partition_responses[0].base_offset == 3


async def _commit(router: Router, group: str, offset: int) -> None:
    """Commit an offset as a client does: until it is taken."""
    while True:
        node_id = await router.coordinator(group, GROUP)
        answer = await router.call(node_id, commit(group, "t", offset), 9)
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            return
        await trio.sleep(0.02)
