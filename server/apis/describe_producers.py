"""DescribeProducers (61): the producers that a partition's leader knows, and their open transactions (KIP-664)."""

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.server.apis.context import RequestContext
from ottla.server.apis.errors import error_code, error_message
from ottla.server.metadata.errors import InvalidTopicError
from ottla.server.metadata.topic_names import check_topic_name
from ottla.server.replica.errors import ReplicaError
from ottla.storage.errors import StorageError


async def handle(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[await _describe(topic.name, index, context) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


async def _describe(name: str, index: int, context: RequestContext) -> PartitionResponse:
    await context.work.rest()
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        return PartitionResponse(
            partition_index=index, error_code=error_code(error), error_message=error_message(error)
        )
    topic = context.broker.metadata.topic(name)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResponse(partition_index=index, error_code=code, error_message=code.message)
    try:
        partition = context.broker.replica_manager.get_partition(topic.topic_id, index)
        partition.require_leader()
    except (ReplicaError, StorageError) as error:
        return PartitionResponse(partition_index=index, error_code=error_code(error))
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer in partition.log.active_producers()
        ],
    )
