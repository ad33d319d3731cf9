"""A mirror of several nodes: a partition's leader copies it, and the followers have what the leader has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.offset_and_metadata import CommittedOffset, OffsetToCommit, TopicPartition
from ottla.metadata.changes.partition_changes import in_epoch
from ottla.metadata.image import ResourceType
from tests.clusters import Cluster, RunCluster, run_cluster
from tests.server.mirror.conftest import Pair, Side, until

__all__ = ["run_cluster"]

PARTITIONS = (0, 1, 2, 3)


async def until_copied(source: Side, cluster: Cluster) -> None:
    """Wait until every node has each partition as the source has it, and shows it."""
    for node in cluster.nodes.values():
        mirror = Side(node)
        for index in PARTITIONS:

            async def is_same(mirror: Side = mirror, index: int = index) -> bool:
                image = mirror.broker.metadata.topic("orders")
                if image is None or index >= len(image.partitions):
                    return False
                log = mirror.partition("orders", index).log
                if log.high_watermark != source.partition("orders", index).log.high_watermark:
                    return False
                assert log.latest_epoch <= image.partitions[index].leader_epoch
                return await bytes_of(mirror, index) == (await source.content("orders", index))[2]

            await until(is_same)


async def bytes_of(side: Side, index: int) -> bytes:
    """A partition's log, whether this node leads it or not."""
    log = side.partition("orders", index).log
    data, offset = b"", log.log_start_offset
    while offset < log.flushed_end_offset:
        chain, offset = await log.read_batches(offset, log.flushed_end_offset)
        data += chain.to_bytes()
        chain.release()
    return data


async def test_nodes_share_the_work_and_take_it_over(
    serve_node: Callable[..., Any], run_cluster: RunCluster, tmp_path: Path
) -> None:
    settings = {
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.num.partitions": "4",
        "replica.lag.time.max.ms": "1000",
        "replica.fetch.wait.max.ms": "100",
    }
    async with serve_node(data_dir=tmp_path / "source") as node, run_cluster(2, settings) as cluster:
        source = Side(node)
        await node.create_topic("orders", len(PARTITIONS))
        for index in PARTITIONS:
            for number in range(10):
                await source.append("orders", b"%d" % number, index=index)
        await Pair(source, Side(cluster[1])).begin(ottla_mirror_groups="*")
        await until_copied(source, cluster)
        leaders = {state.leader for state in cluster[1].image.topics["orders"].partitions}
        assert leaders == {1, 2}
        progresses = [it.broker.mirror.progress for it in cluster.nodes.values()]
        assert [it.partitions for it in progresses if it is not None] == [2, 2]

        # The source loses records: followers are cut as their leader is, whose epochs are the source's.
        key = source.partition("orders").topic_id
        for index in PARTITIONS:
            await source.partition("orders", index).log.truncate_to(4)
            await source.broker.controller.change_partitions({(key, index): lambda state: in_epoch(state, 20)})
            await source.append("orders", b"another history", index=index)
        await until_copied(source, cluster)

        await node.broker.controller.ensure_topic("__consumer_offsets")
        groups = [f"group-{number}" for number in range(8)]
        for group in groups:
            offsets = {TopicPartition("orders", index): OffsetToCommit(5, -1, "", topic_id=key) for index in PARTITIONS}
            await commit(source, group, offsets)
        await until(lambda: all(is_committed(cluster, group) for group in groups))

        await cluster.kill(1)
        for index in PARTITIONS:
            await source.append("orders", b"after the death", index=index)
        await cluster.until(lambda image: all(it.leader == 2 for it in image.topics["orders"].partitions))
        await until_copied(source, cluster)
        await cluster.start(1)
        await source.append("orders", b"with both again")
        await until_copied(source, cluster)
        await Side(cluster[2]).set(ResourceType.BROKER, "", ottla_mirror_bootstrap_servers="")
        await until(lambda: cluster[2].broker.mirror.progress is None)


async def commit(side: Side, group: str, offsets: dict[TopicPartition, OffsetToCommit]) -> None:
    async def is_done() -> bool:
        try:
            return not await side.broker.group_coordinator.offsets.commit(group, offsets)
        except CoordinatorError:
            return False

    await until(is_done)


def is_committed(cluster: Cluster, group: str) -> bool:
    """Whether the group's coordinator has all its offsets."""
    for node in cluster.nodes.values():
        try:
            found = node.broker.group_coordinator.offsets.fetch(group, None, require_stable=False)
        except CoordinatorError:
            continue
        return [it.offset for it in found.values() if isinstance(it, CommittedOffset)] == [5] * len(PARTITIONS)
    return False
