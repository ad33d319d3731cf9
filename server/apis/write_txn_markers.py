"""WriteTxnMarkers (27): end transactions in partitions that this broker leads.

Sent by transaction coordinators, and by administrators to abort a hanging transaction (KIP-664).
"""

from typing import Final

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.kproto.records import EndTxnMarker
from ottla.server.apis.context import RequestContext
from ottla.server.apis.errors import error_code
from ottla.server.coordinator import errors as coordinator
from ottla.server.coordinator.transaction.state import Partition

# A group coordinator that is not here, or not yet, is to its partition's markers as a leader that is not.
_NOT_LED: Final = (
    coordinator.CoordinatorNotAvailableError,
    coordinator.CoordinatorLoadInProgressError,
    coordinator.NotCoordinatorError,
)


async def handle(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[await _write(marker, context) for marker in request.markers])


async def _write(asked: WritableTxnMarker, context: RequestContext) -> WritableTxnMarkerResult:
    image = context.broker.metadata
    work = context.work
    partitions = [
        Partition(topic.name, index) for topic in asked.topics async for index in work.over(topic.partition_indexes)
    ]
    known = [partition async for partition in work.over(partitions) if image.partition(*partition) is not None]
    marker = EndTxnMarker(
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        coordinator_epoch=asked.coordinator_epoch,
        is_commit=asked.transaction_result,
    )
    failed = await context.broker.transaction_markers.write(
        known, marker, transaction_version=asked.transaction_version
    )
    codes = dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    codes |= dict.fromkeys(known, ErrorCode.NONE)
    codes |= {partition: _code(error) for partition, error in failed.items()}
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=codes[Partition(topic.name, index)]
                    )
                    async for index in work.over(topic.partition_indexes)
                ],
            )
            async for topic in work.over(asked.topics)
        ],
    )


def _code(error: Exception) -> ErrorCode:
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if isinstance(error, _NOT_LED) else error_code(error)
