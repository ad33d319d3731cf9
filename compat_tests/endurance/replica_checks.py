"""Whether the replicas of a cluster of real nodes are in sync, and whether they are equal."""

from __future__ import annotations

import time
from contextlib import ExitStack

from ottla.client.client import Client
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing import Cluster

__all__ = ["REPLICAS", "addresses", "compare_replicas", "wait_until_in_sync"]

REPLICAS = 3
IN_SYNC_S = 60.0


def addresses(cluster: Cluster) -> list[tuple[str, int]]:
    """Of the nodes, in the order of their ids."""
    parts = (address.rpartition(":") for address in map(cluster.address, cluster.node_ids))
    return [(host, int(port)) for host, _, port in parts]


def wait_until_in_sync(cluster: Cluster, topic: str) -> None:
    """All replicas are in sync again, as everybody sees it."""
    deadline = time.monotonic() + IN_SYNC_S
    while True:
        with Client(addresses(cluster), 10) as asked:
            partitions = asked.topic(topic).partitions
            if all(set(it.isr_nodes) == set(it.replica_nodes) and it.leader_id > 0 for it in partitions):
                return
        if time.monotonic() > deadline:
            states = [(it.partition_index, it.leader_id, list(it.isr_nodes)) for it in partitions]
            raise AssertionError(f"not in sync within {IN_SYNC_S:g} s: (partition, leader, in sync) {states}")
        time.sleep(0.05)


def compare_replicas(cluster: Cluster, topic: str) -> list[str]:
    """Read each partition from each node, as a consumer reads from a follower, and compare the bytes."""
    wrong = []
    with ExitStack() as stack:
        asked = stack.enter_context(Client(addresses(cluster), 10))
        nodes = {
            node_id: stack.enter_context(Client([address], 10)).any_broker()
            for node_id, address in zip(cluster.node_ids, addresses(cluster), strict=True)
        }
        topics = [MetadataRequestTopic(name=topic)]
        found = asked.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False)).topics[0]
        for state in found.partitions:
            index = state.partition_index
            replicas = {}
            for node_id in state.replica_nodes:
                data, offset, end_offset = b"", 0, 1
                while offset < end_offset:
                    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                    named = FetchTopic(topic_id=found.topic_id, partitions=[partition])
                    answer = nodes[node_id].call(FetchRequest(topics=[named], max_wait_ms=0, min_bytes=0))
                    got = answer.responses[0].partitions[0]
                    if got.error_code:
                        return [f"node {node_id} answers a read of {topic}-{index} with error {got.error_code}"]
                    end_offset = got.high_watermark
                    records = bytes(got.records)
                    data += records
                    offset = next_offset(records, offset)
                    if not records:
                        break
                replicas[node_id] = (offset, data)
            if len(set(replicas.values())) > 1:
                ends = {node_id: (offset, len(data)) for node_id, (offset, data) in replicas.items()}
                wrong.append(f"the replicas of {topic}-{index} differ: (end offset, bytes) by node {ends}")
    return wrong


def next_offset(records: bytes, offset: int) -> int:
    """The offset behind the last of some batches."""
    position = 0
    while position < len(records):
        base = int.from_bytes(records[position : position + 8], "big")
        size_bytes = int.from_bytes(records[position + 8 : position + 12], "big") + 12
        offset = base + int.from_bytes(records[position + 23 : position + 27], "big") + 1
        position += size_bytes
    return offset
