"""DescribeProducers (61): the producers that a replica of a partition knows, and their open transactions (KIP-664).

Every replica answers, for clients may choose which they ask; a broker without one is NOT_LEADER_OR_FOLLOWER.
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.errors import InvalidTopicError
from ottla.metadata.topic_names import check_topic_name
from ottla.replica.errors import ReplicaError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code, error_message
from ottla.server.apis.rules import Each, Rule, by
from ottla.storage.errors import StorageError

API = Api(ApiKey.DESCRIBE_PRODUCERS, Rule(each=Each(AclOperation.READ, "topics", by(AclResource.TOPIC, "name"))))


async def handle(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    expected = 0
    async for topic in context.work.over(request.topics, counts=False):
        found = context.broker.metadata.topic(topic.name)
        async for index in context.work.over(topic.partition_indexes, counts=False):
            if found is not None:
                await context.broker.replica_manager.unopened.wait([(found.topic_id, index)])
            expected += 0 if found is None else _producer_count(found.topic_id, index, context)
    # A partition may be named any number of times.
    await context.work.expect(expected)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[await _describe(topic.name, index, context) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producer_count(topic_id: UUID, index: int, context: RequestContext) -> int:
    try:
        return context.broker.replica_manager.get_partition(topic_id, index).log.producer_count
    except (ReplicaError, StorageError):
        return 0


async def _describe(name: str, index: int, context: RequestContext) -> PartitionResponse:
    await context.work.charge()
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
        producers = context.broker.replica_manager.get_partition(topic.topic_id, index).log.active_producers()
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
            async for producer in context.work.over(producers)
        ],
    )
