"""A transaction coordinator that others have replaced without its knowledge answers nothing from what it remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.schema import Request
from ottla.metadata.changes.topic_changes import NewTopic
from tests.clusters import Cluster, RunCluster
from tests.server.cluster.producers import TRANSACTION, Router, TransactionalProducer, key_at, read_committed

REPLICATED = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
}


def end(producer: TransactionalProducer, *, commit: bool) -> tuple[Request, int]:
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    return request, 4


def verification(producer: TransactionalProducer) -> tuple[Request, int]:
    """As the leader of a partition asks."""
    asked = AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return AddPartitionsToTxnRequest(transactions=[asked]), 5


def addition(producer: TransactionalProducer) -> tuple[Request, int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return request, 3


def code_of(answer: Any) -> ErrorCode:
    if not hasattr(answer, "results_by_topic_v3_and_below"):
        return ErrorCode(answer.error_code)
    topics = answer.results_by_topic_v3_and_below or answer.results_by_transaction[0].topic_results
    return ErrorCode(topics[0].results_by_partition[0].partition_error_code)


async def prepared(cluster: Cluster, router: Router) -> TransactionalProducer:
    """A producer without transactions v2, one of whose transactions node 2 has committed."""
    await cluster[1].broker.controller.create_topic(NewTopic("t", assignments={0: [1]}))
    await cluster.until(lambda image: image.topic("t") is not None)
    producer = TransactionalProducer(router, await key_at(router, 2, TRANSACTION), is_v2=False)
    await producer.init()
    await producer.send("t", 0, b"first")
    await producer.end(commit=True)
    return producer


async def replace(cluster: Cluster) -> None:
    """Cut node 2 off from the metadata, until others coordinate in its place."""
    cluster[2].store.is_cut_off = True
    await cluster.until(lambda image: image.brokers[2].fenced, 1, 3)
    await cluster.until(lambda image: 2 not in image.topics["__transaction_state"].partitions[0].isr, 1, 3)


@pytest.mark.parametrize("commit", [True, False])
async def test_who_was_replaced_ends_no_transaction_that_others_began(run_cluster: RunCluster, *, commit: bool) -> None:
    """It remembers the one before, which was committed, and took a commit for a repetition: the new one was lost."""
    async with run_cluster(3, REPLICATED) as cluster:
        router = Router(cluster)
        producer = await prepared(cluster, router)
        await replace(cluster)
        await producer.send("t", 0, b"second")
        assert code_of(await router.call(2, *end(producer, commit=commit))) is ErrorCode.NOT_COORDINATOR
        await producer.end(commit=True)
        assert await read_committed(router, "t", 0, 2) == [b"first", b"second"]


@pytest.mark.parametrize("request_of", [verification, addition])
async def test_who_was_replaced_takes_no_transaction_for_ongoing(
    run_cluster: RunCluster, request_of: Callable[[TransactionalProducer], tuple[Request, int]]
) -> None:
    """What is written to a transaction that is over would stay open for ever."""
    async with run_cluster(3, REPLICATED) as cluster:
        router = Router(cluster)
        producer = await prepared(cluster, router)
        await producer.send("t", 0, b"second")
        assert code_of(await router.call(2, *request_of(producer))) is ErrorCode.NONE
        await replace(cluster)
        await producer.end(commit=True)
        assert code_of(await router.call(2, *request_of(producer))) is ErrorCode.NOT_COORDINATOR


async def test_who_was_replaced_does_not_fence_who_came_after(run_cluster: RunCluster) -> None:
    async with run_cluster(3, REPLICATED) as cluster:
        router = Router(cluster)
        producer = await prepared(cluster, router)
        await replace(cluster)
        await producer.init()
        assert code_of(await router.call(2, *end(producer, commit=True))) is ErrorCode.NOT_COORDINATOR


async def test_where_nobody_reaches_the_metadata_all_is_answered(run_cluster: RunCluster) -> None:
    async with run_cluster(3, REPLICATED) as cluster:
        router = Router(cluster)
        producer = await prepared(cluster, router)
        for node in cluster.nodes.values():
            node.store.is_cut_off = True
        with trio.fail_after(20):
            while not cluster[2].broker.replica_manager.may_be_replaced():  # noqa: ASYNC110 - time decides
                await trio.sleep(0.02)
        assert code_of(await router.call(2, *end(producer, commit=True))) is ErrorCode.NONE
        assert code_of(await router.call(2, *end(producer, commit=False))) is ErrorCode.INVALID_TXN_STATE
