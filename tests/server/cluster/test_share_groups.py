"""Share groups whose group coordinator, share coordinators and leaders are on different nodes."""

from __future__ import annotations

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.server.share.in_flight import REJECT
from tests.clusters import Cluster, RunCluster
from tests.server.cluster.producers import GROUP, Router, key_at
from tests.server.share.conftest import ShareClient
from tests.server.share.test_dead_letter_nodes import until
from tests.server.share.test_share_groups import produce

SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "6",
    "share.coordinator.state.topic.replication.factor": "1",
}
PARTITIONS = 6


async def members(cluster: Cluster, coordinator: int) -> list[ShareClient]:
    """A member of the group as each node knows it: it fetches from that node what the node leads."""
    router = Router(cluster)
    group = await key_at(router, coordinator, GROUP)
    resource = ConfigResource(ResourceType.GROUP, group)
    change = ConfigChange("share.auto.offset.reset", ConfigOperation.SET, "earliest")
    assert await cluster[1].broker.controller.alter_configs({resource: [change]}) == {resource: None}
    member = ShareClient(await cluster[coordinator].connect(), group, "m")
    with trio.fail_after(20):
        # The coordinator may be loading.
        while not member.epoch:
            await member.beat(subscribed_topic_names=["t"])
            await trio.sleep(0.02)
        while sum(map(len, member.assigned.values())) < PARTITIONS:
            await trio.sleep(0.02)
            await member.beat()
    found = []
    for node_id in cluster.nodes:
        each = ShareClient(await cluster[node_id].connect(), group, "m")
        each.assigned = {
            topic_id: [index for index in indexes if index % 3 + 1 == node_id]
            for topic_id, indexes in member.assigned.items()
        }
        found.append(each)
    return found


@pytest.mark.parametrize("coordinator", [1, 2])
async def test_records_and_state_on_all_nodes(run_cluster: RunCluster, coordinator: int) -> None:
    async with run_cluster(settings=SETTINGS) as cluster:
        assignments = {index: [index % 3 + 1] for index in range(PARTITIONS)}
        created = await cluster[1].broker.controller.create_topic(NewTopic("t", assignments=assignments))
        await cluster.until(lambda image: image.topic_by_id(created.topic_id) is not None)
        for index in range(PARTITIONS):
            await produce(cluster[index % 3 + 1], created.topic_id, b"a", b"b", index=index)
        fetching = await members(cluster, coordinator)
        for each in fetching:
            acquired: list[tuple[int, int, int]] = []
            while len(acquired) < 2:
                acquired += await each.acquire()
            assert acquired == [(0, 1, 1), (0, 1, 1)]
            assert await each.acknowledge(0, 0) == ErrorCode.NONE
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=fetching[0].group, topics=None)
        client = await cluster[coordinator].connect()
        answer = await client.call(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
        lags = {each.partition_index: each.lag for each in answer.groups[0].topics[0].partitions}
        acknowledged = {next(iter(each.assigned.values()))[0] for each in fetching}
        assert lags == {index: 1 if index in acknowledged else 2 for index in range(PARTITIONS)}


async def test_dead_letters_whose_queue_others_lead(run_cluster: RunCluster) -> None:
    async with run_cluster(settings=SETTINGS) as cluster:
        controller = cluster[1].broker.controller
        assignments = {index: [index % 3 + 1] for index in range(PARTITIONS)}
        created = await controller.create_topic(NewTopic("t", assignments=assignments))
        queues = {index: [(index + 1) % 3 + 1] for index in range(PARTITIONS)}
        configs = {"errors.deadletterqueue.group.enable": "true"}
        queue = await controller.create_topic(NewTopic("dlq.q", assignments=queues, configs=configs))
        await cluster.until(lambda image: image.topic_by_id(queue.topic_id) is not None)
        for index in range(PARTITIONS):
            await produce(cluster[index % 3 + 1], created.topic_id, b"a", b"b", index=index)
        fetching = await members(cluster, 1)
        resource = ConfigResource(ResourceType.GROUP, fetching[0].group)
        change = ConfigChange("errors.deadletterqueue.topic.name", ConfigOperation.SET, "dlq.q")
        assert await controller.alter_configs({resource: [change]}) == {resource: None}
        await cluster.until(lambda image: "errors.deadletterqueue.topic.name" in image.resource_configs(resource))
        for each in fetching:
            acquired: list[tuple[int, int, int]] = []
            while len(acquired) < 2:
                acquired += await each.acquire()
            assert await each.acknowledge(0, 0, REJECT) == ErrorCode.NONE
        rejected = {next(iter(each.assigned.values()))[0] for each in fetching}
        written = [node.broker.share.manager.dead_letters.counters for node in cluster.nodes.values()]
        group = fetching[0].group
        await until(lambda: [group in it and it[group].records for it in written] == [1, 1, 1])
        for index in rejected:
            (leader,) = queues[index]
            assert cluster[leader].broker.replica_manager.get_partition(queue.topic_id, index).log.high_watermark == 1
