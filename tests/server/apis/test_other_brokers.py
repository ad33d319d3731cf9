"""What another broker answers about transactions is believed only if it is about those that it was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch
from ottla.kproto.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.kproto.messages.transactions.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from ottla.kproto.records import EndTxnMarker
from ottla.server.apis.other_brokers import PeerBrokers

ASKED = [Partition("t", 0), Partition("t", 1)]
MARKER = EndTxnMarker(producer_id=1, producer_epoch=0, coordinator_epoch=0, is_commit=True)


def brokers(answer: Any) -> PeerBrokers:
    async def call(*_: object, **__: object) -> Any:
        return answer

    return PeerBrokers(cast("Any", SimpleNamespace(call=call)))


def marked(*indexes: int) -> WritableTxnMarkerResult:
    partitions = [WritableTxnMarkerPartitionResult(partition_index=index) for index in indexes]
    return WritableTxnMarkerResult(
        producer_id=1, topics=[WritableTxnMarkerTopicResult(name="t", partitions=partitions)]
    )


def added(*indexes: int) -> AddPartitionsToTxnResult:
    partitions = [AddPartitionsToTxnPartitionResult(partition_index=index) for index in indexes]
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=partitions)
    return AddPartitionsToTxnResult(transactional_id="x", topic_results=[topic])


ANSWERS = [(((0, 1),), []), (((1,),), ASKED[:1]), ((), ASKED), (((0, 1), (0, 1)), ASKED)]
"""The partitions in each result, and those that count as not answered."""


@pytest.mark.parametrize(("answered", "left"), ANSWERS)
async def test_a_marker_is_written_where_that_is_said(
    answered: tuple[tuple[int, ...], ...], left: list[Partition]
) -> None:
    response = WriteTxnMarkersResponse(markers=[marked(*indexes) for indexes in answered])
    assert list(await brokers(response).write_markers(2, ASKED, MARKER)) == left


@pytest.mark.parametrize(("answered", "left"), ANSWERS)
async def test_a_partition_takes_part_where_that_is_said(
    answered: tuple[tuple[int, ...], ...], left: list[Partition]
) -> None:
    response = AddPartitionsToTxnResponse(results_by_transaction=[added(*indexes) for indexes in answered])
    refused = await brokers(response).take_part(2, "x", ProducerIdAndEpoch(1, 0), ASKED, joins=True)
    assert list(refused) == left
    assert all(isinstance(error, CoordinatorError) for error in refused.values())
