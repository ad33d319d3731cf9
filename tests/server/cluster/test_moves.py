"""Leaders and coordinators move while they work: nothing that was answered is lost, or there twice."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.image import MetadataImage
from tests.clusters import RunCluster
from tests.server.cluster.producers import Router, TransactionalProducer, committed_offset, read_committed

REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
}


def all_in_sync(image: MetadataImage) -> bool:
    return all(len(state.isr) == 3 for topic in image.topics.values() for state in topic.partitions)


@pytest.mark.parametrize("is_v2", [False, True])
async def test_transactions_go_on_while_one_node_after_the_other_dies(run_cluster: RunCluster, is_v2: bool) -> None:
    done: Counter[bytes] = Counter()
    last_offsets: dict[str, int] = {}

    async with run_cluster(3, REPLICATED) as cluster:
        await cluster[1].broker.controller.create_topic(NewTopic("t", 3, 3))
        stop = trio.Event()

        async def produce(name: str) -> None:
            router = Router(cluster)
            producer = TransactionalProducer(router, name, is_v2=is_v2)
            await producer.init()
            number = 0
            while not stop.is_set():
                number += 1
                commit = number % 3 != 0
                value = b"%s-%d" % (name.encode(), number)
                for partition in range(3):
                    assert await producer.send("t", partition, value) == ErrorCode.NONE
                await producer.send_offset(f"group-{name}", "t", number)
                await producer.end(commit=commit)
                if commit:
                    done[value] += 1
                    last_offsets[f"group-{name}"] = number

        async with trio.open_nursery() as nursery:
            for name in ("a", "b"):
                nursery.start_soon(produce, name)
            for victim in (1, 2, 3):
                await cluster.until_connected()
                await cluster.until(all_in_sync)
                before = len(done)
                await cluster.kill(victim)
                with trio.fail_after(30):
                    while len(done) < before + 4:  # noqa: ASYNC110 - nobody tells
                        await trio.sleep(0.02)
                await cluster.start(victim)
            await cluster.until(all_in_sync)
            stop.set()

        router = Router(cluster)
        for partition in range(3):
            values = await read_committed(router, "t", partition, len(done))
            assert Counter(values) == done
        for group, offset in last_offsets.items():
            assert await committed_offset(router, group, "t") == offset
