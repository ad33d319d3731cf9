"""What a cluster larger than this machine asks of the metadata: of its store, of each node's image and of answers.

    python -m benchmarks.scale [--brokers 100] [--topics 1000] [--partitions 100]

It makes the entries of such a cluster and puts them through the code that a node uses, in this process and without a
store: how many keys and bytes there are, how long a node takes to read them and how much memory that takes, what the
death of one broker and a restart of all of them write, and how large the answer to a request for all topics is. Seconds
are of CPU.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from random import Random
from uuid import UUID

from ottla.kproto import codec
from ottla.kproto.messages.topics.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.metadata import keys
from ottla.metadata.changes.partition_changes import PartitionUpdate, follow_live, hand_over
from ottla.metadata.changes.partition_transactions import PartitionKey, in_transactions, plan_changes
from ottla.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionState
from ottla.metadata.image_delta import evolve
from ottla.metastore.store import KeyValue, Put

REPLICAS = 3
_METADATA_VERSION = 13


def entries(brokers: int, topics: int, partitions: int) -> Iterator[KeyValue]:
    """The keys of a cluster that was just created."""
    random = Random(1)
    for node_id in range(1, brokers + 1):
        image = BrokerImage(node_id, (Endpoint("PLAINTEXT", f"broker-{node_id}.example", 9092),), f"rack-{node_id % 3}")
        yield KeyValue(keys.broker(node_id), keys.encode_broker(image), 1, 1)
        yield KeyValue(keys.alive(node_id), keys.encode_session(image), 1, 1)
    for number in range(topics):
        first = random.randrange(brokers)
        replicas = [
            tuple((first + index + step) % brokers + 1 for step in range(REPLICAS)) for index in range(partitions)
        ]
        topic_id = UUID(int=random.getrandbits(128), version=4)
        yield KeyValue(keys.topic(f"topic-{number:06}"), keys.encode_topic(topic_id, replicas, {}), 1, 1)


class Timed:
    """CPU seconds and growth of memory of a block."""

    def __enter__(self) -> Timed:
        self._began, self._before = time.process_time(), _memory_bytes()
        self.seconds = self.size_bytes = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self._began
        self.size_bytes = _memory_bytes() - self._before


def _memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def changed(image: MetadataImage, update: PartitionUpdate) -> dict[PartitionKey, PartitionUpdate]:
    return {
        (topic.topic_id, index): update
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
        if update(state) is not state
    }


def report_change(name: str, image: MetadataImage, update: PartitionUpdate) -> MetadataImage:
    """Write a change of many partitions as the controller does, and follow it as every node does."""
    with Timed() as looked:
        changes = changed(image, update)
    size_bytes = transactions = 0
    puts: list[list[KeyValue]] = []
    with Timed() as planned:
        for part in in_transactions(changes):
            _, operations, _ = plan_changes(part, image, lambda _: 1, lambda _: None)
            written = [KeyValue(each.key, each.value, 2, 2) for each in operations if isinstance(each, Put)]
            size_bytes += sum(len(each.key) + len(each.value) for each in written)
            transactions += 1
            puts.append(written)
    with Timed() as followed:
        for written in puts:
            image = evolve(image, image.revision + 1, written, ()).after
    print(
        f"{name}: {len(changes):,} partitions in {transactions:,} transactions of {size_bytes / 1e6:.2f} MB; "
        f"looked for in {looked.seconds:.2f} s, planned in {planned.seconds:.2f} s, "
        f"followed by each node in {followed.seconds:.2f} s"
    )
    return image


def report(brokers: int, topics: int, partitions: int) -> None:
    total = topics * partitions
    print(f"{brokers} brokers, {topics:,} topics, {total:,} partitions, {REPLICAS} replicas each")
    listed = list(entries(brokers, topics, partitions))
    size_bytes = sum(len(each.key) + len(each.value) for each in listed)
    print(f"created: {len(listed):,} keys, {size_bytes / 1e6:.2f} MB")
    with Timed() as loaded:
        image = evolve(MetadataImage(), 1, listed, ()).after
    print(f"a node reads them in {loaded.seconds:.2f} s, and holds {loaded.size_bytes / 1e6:.0f} MB")
    image = report_change("the death of a broker", image, without(1, image))
    for node_id in range(2, min(brokers, 4) + 1):
        image = report_change(f"broker {node_id} stops in order", image, handed_over(node_id, image))
    with Timed() as built:
        answer = metadata_of(image)
        parts = codec.build_parts(answer, _METADATA_VERSION)
    print(f"Metadata of all topics: {sum(map(len, parts)) / 1e6:.2f} MB in {built.seconds:.2f} s")


def without(node_id: int, image: MetadataImage) -> PartitionUpdate:
    live = frozenset(image.brokers) - {node_id}

    def update(state: PartitionState) -> PartitionState:
        return follow_live(state, live)

    return update


def handed_over(node_id: int, image: MetadataImage) -> PartitionUpdate:
    live = frozenset(image.brokers)

    def update(state: PartitionState) -> PartitionState:
        return hand_over(state, node_id, live)

    return update


def metadata_of(image: MetadataImage) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=it.node_id, host=it.endpoints[0].host, port=it.endpoints[0].port)
            for it in image.brokers.values()
        ],
        topics=[
            MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index,
                        leader_id=state.leader,
                        leader_epoch=state.leader_epoch,
                        replica_nodes=list(state.replicas),
                        isr_nodes=list(state.isr),
                    )
                    for index, state in enumerate(topic.partitions)
                ],
            )
            for topic in image.topics.values()
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=100)
    arguments = parser.parse_args()
    report(arguments.brokers, arguments.topics, arguments.partitions)


if __name__ == "__main__":
    main()
