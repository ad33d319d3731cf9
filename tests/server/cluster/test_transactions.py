"""Transactions whose coordinator is one node and whose data lies on all of them."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.kproto.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.metadata.changes.topic_changes import NewTopic
from tests.clusters import Cluster, RunCluster
from tests.server.cluster.producers import (
    GROUP,
    TRANSACTION,
    Router,
    TransactionalProducer,
    committed_offset,
    key_at,
    read_committed,
)


async def create_everywhere(cluster: Cluster) -> None:
    """A topic `t` whose partition n is led by node n + 1."""
    assignments = {node_id - 1: [node_id] for node_id in cluster.nodes}
    created = await cluster[1].broker.controller.create_topic(NewTopic("t", assignments=assignments))
    await cluster.until(lambda image: image.topic_by_id(created.topic_id) is not None)


@pytest.mark.parametrize("is_v2", [False, True])
async def test_a_transaction_over_all_nodes(run_cluster: RunCluster, is_v2: bool) -> None:
    async with run_cluster() as cluster:
        await create_everywhere(cluster)
        router = Router(cluster)
        for coordinator, of_group in ((1, 2), (2, 3)):
            group = await key_at(router, of_group, GROUP)
            transactional_id = await key_at(router, coordinator, TRANSACTION)
            producer = TransactionalProducer(router, transactional_id, is_v2=is_v2)
            await producer.init()
            for number, commit in enumerate((True, False, True)):
                for partition in range(3):
                    value = b"%d %s" % (number, b"yes" if commit else b"no")
                    assert await producer.send("t", partition, value) == ErrorCode.NONE
                await producer.send_offset(group, "t", number)
                await producer.end(commit=commit)
            assert await committed_offset(router, group, "t") == 2
        for partition in range(3):
            expected = [b"0 yes", b"2 yes", b"0 yes", b"2 yes"]
            assert await read_committed(router, "t", partition, 4) == expected


@pytest.mark.parametrize("is_v2", [False, True])
async def test_many_at_the_same_time_share_requests_between_brokers(run_cluster: RunCluster, is_v2: bool) -> None:
    transactions, producers = 3, 8
    async with run_cluster() as cluster:
        await create_everywhere(cluster)
        router = Router(cluster)

        async def produce(number: int) -> None:
            own = Router(cluster)
            producer = TransactionalProducer(own, f"many{number}", is_v2=is_v2)
            await producer.init()
            for transaction in range(transactions):
                for partition in range(3):
                    await producer.send("t", partition, b"%d" % transaction)
                await producer.end(commit=True)

        async with trio.open_nursery() as nursery:
            for number in range(producers):
                nursery.start_soon(produce, number)
        for partition in range(3):
            values = await read_committed(router, "t", partition, producers * transactions)
            assert Counter(values) == {b"%d" % it: producers for it in range(transactions)}


async def test_a_partition_that_takes_no_part_is_refused(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        await create_everywhere(cluster)
        router = Router(cluster)
        producer = TransactionalProducer(router, await key_at(router, 1, TRANSACTION), is_v2=False)
        await producer.init()
        assert await producer.send("t", 1, b"takes part") == ErrorCode.NONE
        for partition in (0, 2):
            code = await producer.send("t", partition, b"does not", joins=False)
            assert code == ErrorCode.TRANSACTION_ABORTABLE
        await producer.end(commit=True)
        assert await read_committed(router, "t", 1, 1) == [b"takes part"]
        assert await read_committed(router, "t", 2, 0) == []


async def test_a_node_that_is_away_gets_its_markers_when_it_is_back(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        await create_everywhere(cluster)
        router = Router(cluster)
        producer = TransactionalProducer(router, await key_at(router, 1, TRANSACTION), is_v2=True)
        await producer.init()
        for partition in range(3):
            assert await producer.send("t", partition, b"v") == ErrorCode.NONE
        await cluster.kill(3)
        await producer.end(commit=True)
        for partition in (0, 1):
            assert await read_committed(router, "t", partition, 1) == [b"v"]
        await cluster.start(3)
        assert await read_committed(router, "t", 2, 1) == [b"v"]
        assert await producer.send("t", 0, b"w") == ErrorCode.NONE  # the transaction is over: the next one may begin
        await producer.end(commit=True)


async def test_a_coordinator_that_was_killed_carries_through_what_it_had_decided(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        await create_everywhere(cluster)
        router = Router(cluster)
        producer = TransactionalProducer(router, await key_at(router, 1, TRANSACTION), is_v2=True)
        await producer.init()
        for partition in (1, 2):
            assert await producer.send("t", partition, b"v") == ErrorCode.NONE
        await cluster.kill(3)
        await producer.end(commit=True)
        await cluster.kill(1)
        await cluster.start(3)
        await cluster.start(1)
        for partition in (1, 2):
            assert await read_committed(router, "t", partition, 1) == [b"v"]


async def test_a_zombie_is_fenced_at_every_node(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        await create_everywhere(cluster)
        router = Router(cluster)
        transactional_id = await key_at(router, 3, TRANSACTION)
        zombie = TransactionalProducer(router, transactional_id, is_v2=True)
        await zombie.init()
        assert await zombie.send("t", 0, b"aborted") == ErrorCode.NONE
        await TransactionalProducer(router, transactional_id, is_v2=True).init()
        for partition in range(3):
            assert await zombie.send("t", partition, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await read_committed(router, "t", 0, 0) == []


async def test_brokers_ask_for_several_transactions_at_once(run_cluster: RunCluster) -> None:
    async with run_cluster() as cluster:
        await create_everywhere(cluster)
        router = Router(cluster)
        producer = TransactionalProducer(router, await key_at(router, 2, TRANSACTION), is_v2=True)
        await producer.init()
        await producer.send("t", 0, b"0")

        def asked(name: str, partition: int) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[partition])],
            )

        names = [(producer.transactional_id, 0), (producer.transactional_id, 1), ("nobody", 0)]
        request = AddPartitionsToTxnRequest(transactions=[asked(*it) for it in names])
        response = await router.call(2, request, 5)
        codes = [
            it.topic_results[0].results_by_partition[0].partition_error_code for it in response.results_by_transaction
        ]
        assert codes[:2] == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]
        assert codes[2] in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.NOT_COORDINATOR)


async def test_every_replica_says_which_producers_it_knows(run_cluster: RunCluster) -> None:
    async with run_cluster(4) as cluster:
        created = await cluster[1].broker.controller.create_topic(NewTopic("t", assignments={0: [1, 2, 3]}))
        await cluster.until(lambda image: image.topic_by_id(created.topic_id) is not None)
        router = Router(cluster)
        producer = TransactionalProducer(router, "x", is_v2=True)
        await producer.init()
        assert await producer.send("t", 0, b"open") == ErrorCode.NONE

        async def known(node_id: int) -> tuple[int, list[tuple[int, int]]]:
            request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
            (answer,) = (await router.call(node_id, request, 0)).topics[0].partitions
            producers = [(each.producer_id, each.current_txn_start_offset) for each in answer.active_producers]
            return answer.error_code, producers

        for node_id in (1, 2, 3):
            while not (answer := await known(node_id))[1]:
                assert answer[0] == ErrorCode.NONE
                await trio.sleep(0.01)
            assert answer == (ErrorCode.NONE, [(producer.producer_id, 0)])
        assert await known(4) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
