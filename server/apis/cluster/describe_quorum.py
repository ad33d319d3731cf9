"""DescribeQuorum (55): who keeps the cluster's metadata.

Ottla keeps it in a store instead of a quorum of its own, and answers as a quorum whose voters are the brokers, the
controller leads, and everybody has read up to the store's revision. Only partition 0 of __cluster_metadata exists.
"""

from __future__ import annotations

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)
from ottla.metadata.acls import AclOperation
from ottla.metadata.changes.topic_changes import CLUSTER_METADATA_TOPIC
from ottla.metadata.image import MetadataImage
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.DESCRIBE_QUORUM, on_cluster(AclOperation.DESCRIBE))


async def handle(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    image = context.broker.metadata
    is_known = any(topic.topic_name == CLUSTER_METADATA_TOPIC for topic in request.topics)
    return DescribeQuorumResponse(
        topics=[
            TopicDataResponse(
                topic_name=topic.topic_name,
                partitions=[
                    _partition(topic.topic_name, partition.partition_index, context)
                    async for partition in context.work.over(topic.partitions)
                ],
            )
            async for topic in context.work.over(request.topics)
        ],
        nodes=_nodes(image) if is_known and context.header.api_version >= 2 else [],
    )


def _nodes(image: MetadataImage) -> list[Node]:
    return [
        Node(
            node_id=broker.node_id,
            listeners=[Listener(name=it.listener, host=it.host, port=it.port) for it in broker.endpoints],
        )
        for broker in image.brokers.values()
    ]


def _partition(topic: str, number: int, context: RequestContext) -> PartitionDataResponse:
    if topic != CLUSTER_METADATA_TOPIC or number != 0:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionDataResponse(
            partition_index=number, error_code=code, error_message="This server does not host this topic-partition."
        )
    image = context.broker.metadata
    now_ms = context.broker.clock.time_ms()
    voters = [
        ReplicaState(
            replica_id=broker.node_id,
            log_end_offset=image.revision + 1,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for broker in image.live_brokers()
    ]
    return PartitionDataResponse(
        partition_index=0,
        leader_id=image.controller_id,
        leader_epoch=1,
        high_watermark=image.revision + 1,
        current_voters=voters,
    )
