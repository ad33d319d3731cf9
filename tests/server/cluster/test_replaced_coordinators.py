"""A coordinator that others have replaced without its knowledge shows no committed offset that is out of date."""

from __future__ import annotations

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from ottla.metadata.changes.topic_changes import NewTopic
from tests.clusters import Cluster, RunCluster
from tests.server.cluster.producers import GROUP, Router, key_at

REPLICATED = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.num.partitions": "3"}


async def committed(router: Router, node_id: int, group: str, offset: int) -> None:
    """Commit an offset at a node, trying again as clients do."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    code = ErrorCode.NOT_COORDINATOR
    while code:
        answer = await router.call(node_id, OffsetCommitRequest(group_id=group, topics=[topic]), 8)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        await trio.sleep(0.02)


async def fetched(router: Router, node_id: int, group: str) -> list[tuple[ErrorCode, list[int]]]:
    """What a node says has been committed, as an older client asks it and as a newer one does, together with a group
    that it does not coordinate."""
    older = await router.call(
        node_id,
        OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]),
        7,
    )
    asked = [OffsetFetchRequestGroup(group_id=each, topics=None) for each in (group, "another")]
    newer = (await router.call(node_id, OffsetFetchRequest(groups=asked), 9)).groups[0]
    return [
        (ErrorCode(it.error_code), [each.committed_offset for topic in it.topics for each in topic.partitions])
        for it in (older, newer)
    ]


async def prepared(cluster: Cluster, router: Router) -> str:
    """A group of node 2 with 1 committed, whose coordinator could be any node."""
    await cluster[1].broker.controller.create_topic(NewTopic("t", assignments={0: [1]}))
    await cluster.until(lambda image: image.topic("t") is not None)
    group = await key_at(router, 2, GROUP)
    await committed(router, 2, group, 1)
    return group


async def test_who_was_replaced_does_not_show_what_it_had(run_cluster: RunCluster) -> None:
    async with run_cluster(3, REPLICATED) as cluster:
        router = Router(cluster)
        group = await prepared(cluster, router)
        cluster[2].store.is_cut_off = True
        await cluster.until(lambda image: image.brokers[2].fenced, 1, 3)
        await cluster.until(lambda image: 2 not in image.topics["__consumer_offsets"].partitions[0].isr, 1, 3)
        await committed(router, await router.coordinator(group, GROUP), group, 2)
        assert await fetched(router, 2, group) == [(ErrorCode.NOT_COORDINATOR, [])] * 2
        cluster[2].store.is_cut_off = False
        await cluster.until(lambda image: not image.brokers[2].fenced)
        at = await router.coordinator(group, GROUP)
        assert await fetched(router, at, group) == [(ErrorCode.NONE, [2])] * 2


async def test_where_nobody_reaches_the_metadata_all_is_shown(run_cluster: RunCluster) -> None:
    async with run_cluster(3, REPLICATED) as cluster:
        router = Router(cluster)
        group = await prepared(cluster, router)
        for node in cluster.nodes.values():
            node.store.is_cut_off = True
        with trio.fail_after(20):
            while not cluster[2].broker.replica_manager.may_be_replaced():  # noqa: ASYNC110 - time decides
                await trio.sleep(0.02)
        await committed(router, 2, group, 2)
        assert await fetched(router, 2, group) == [(ErrorCode.NONE, [2])] * 2
