"""AlterReplicaLogDirs (34): a node has one data folder, so nothing can be moved.

Naming the folder where a partition already is, is not an error; any other folder is LOG_DIR_NOT_FOUND.
"""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.server.apis.context import RequestContext
from ottla.server.apis.describe_log_dirs import log_dir


async def handle(request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
    image = context.broker.metadata
    own = log_dir(context.broker)
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        is_own = directory.path.rstrip("/") == own
        for topic in directory.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            async for number in context.work.over(topic.partitions):
                code = ErrorCode.NONE
                if not is_own:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif image.partition(topic.name, number) is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))
