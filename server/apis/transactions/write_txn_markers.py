"""WriteTxnMarkers (27): end transactions in partitions that this broker leads.

Sent by transaction coordinators, and by administrators to abort a hanging transaction (KIP-664).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Self

import trio

from ottla.coordinator import errors as coordinator
from ottla.coordinator.transaction.state import Partition
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.kproto.records import EndTxnMarker
from ottla.metadata.acls import AclOperation
from ottla.runtime.time_slice import TimeSlice
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import Cluster, Rule

API = Api(ApiKey.WRITE_TXN_MARKERS, Rule([Cluster([AclOperation.ALTER, AclOperation.CLUSTER_ACTION])]))

#: Markers that are written together, and flushed together.
_MARKERS_A_WRITE: Final = 64

# For markers, a group coordinator that is not here (yet) is the same as a leader that is not here.
_NOT_LED: Final = (
    coordinator.CoordinatorNotAvailableError,
    coordinator.CoordinatorLoadInProgressError,
    coordinator.NotCoordinatorError,
)


async def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """One result for each producer, whose partitions are those of all its markers; none if they name no partition."""
    codes: dict[int, dict[Partition, ErrorCode]] = {}
    for first in range(0, len(request.markers), _MARKERS_A_WRITE):
        for one in await _write_some(request.markers[first : first + _MARKERS_A_WRITE], context):
            if one.codes:
                codes.setdefault(one.producer_id, {}).update(one.codes)
    return WriteTxnMarkersResponse(
        markers=[
            await _result(producer_id, codes[producer_id], context) async for producer_id in context.work.over(codes)
        ]
    )


async def _write_some(markers: Sequence[WritableTxnMarker], context: RequestContext) -> Sequence[_Asked]:
    asked = [await _Asked.of(marker, context) for marker in markers]
    async with trio.open_nursery() as nursery:
        for one in asked:
            nursery.start_soon(one.write, context)
    return asked


async def _result(
    producer_id: int, codes: Mapping[Partition, ErrorCode], context: RequestContext
) -> WritableTxnMarkerResult:
    results: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    async for partition in context.work.over(codes):
        result = WritableTxnMarkerPartitionResult(partition_index=partition.partition, error_code=codes[partition])
        results.setdefault(partition.topic, []).append(result)
    topics = [WritableTxnMarkerTopicResult(name=name, partitions=found) for name, found in results.items()]
    return WritableTxnMarkerResult(producer_id=producer_id, topics=topics)


class _Asked:
    """One marker on its way into its partitions."""

    def __init__(
        self, marker: WritableTxnMarker, known: dict[Partition, None], codes: dict[Partition, ErrorCode]
    ) -> None:
        self._marker = marker
        self._known = known
        #: What came of it, of each partition that the marker names.
        self.codes = codes

    @property
    def producer_id(self) -> int:
        return self._marker.producer_id

    @classmethod
    async def of(cls, marker: WritableTxnMarker, context: RequestContext) -> Self:
        image = context.broker.metadata
        work = context.work
        # Each once, however often it is named.
        codes = {
            Partition(topic.name, index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic in marker.topics
            async for index in work.over(topic.partition_indexes)
        }
        known = {partition: None async for partition in work.over(codes) if image.partition(*partition) is not None}
        work.leave(codes, known)
        return cls(marker, known, codes)

    async def write(self, context: RequestContext) -> None:
        if self._marker.producer_id < 0 or self._marker.producer_epoch < 0:
            # Such a producer has no transaction: readers of the log could do nothing with the marker.
            async for partition in context.work.over(self._known, counts=False):
                self.codes[partition] = ErrorCode.INVALID_PRODUCER_EPOCH
            return
        marker = EndTxnMarker(
            producer_id=self._marker.producer_id,
            producer_epoch=self._marker.producer_epoch,
            coordinator_epoch=self._marker.coordinator_epoch,
            is_commit=self._marker.transaction_result,
        )
        failed = await context.broker.transaction_markers.write(
            self._known, marker, transaction_version=self._marker.transaction_version
        )
        time_slice = TimeSlice()
        for partition in self._known:
            await time_slice.maybe_yield()
            error = failed.get(partition)
            self.codes[partition] = ErrorCode.NONE if error is None else _code(error)


def _code(error: Exception) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if isinstance(error, _NOT_LED) else error_code(error)
