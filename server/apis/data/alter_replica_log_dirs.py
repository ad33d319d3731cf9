"""AlterReplicaLogDirs (34): a node has one data folder, so nothing can be moved.

Naming the folder where a partition already is, is not an error; any other folder is LOG_DIR_NOT_FOUND. Before all that,
a partition whose name leaves no room for what Kafka adds to it while it moves is INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from typing import Final

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.metadata.acls import AclOperation
from ottla.server.apis.context import RequestContext
from ottla.server.apis.data.describe_log_dirs import log_dir
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import on_cluster

API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, on_cluster(AclOperation.ALTER))

_MAX_MOVED_LENGTH: Final = 255 - len(".") - 32 - len("-future")
"""Of topic, hyphen and partition: UnifiedLog.logFutureDirName adds a UUID in hexadecimal, and this."""


async def handle(request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
    image = context.broker.metadata
    own = log_dir(context.broker)
    # Of a partition that is named twice the last directory counts, as in Kafka's request.
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        is_own = directory.path.rstrip("/") == own
        for topic in directory.topics:
            async for number in context.work.over(topic.partitions):
                code = ErrorCode.NONE
                if len(f"{topic.name}-{number}") > _MAX_MOVED_LENGTH:
                    code = ErrorCode.INVALID_TOPIC_EXCEPTION
                elif not is_own:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif image.partition(topic.name, number) is None:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                codes.setdefault(topic.name, {})[number] = code
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
                async for number, code in context.work.over(of_topic.items(), counts=False)
            ],
        )
        for name, of_topic in codes.items()
    ]
    return AlterReplicaLogDirsResponse(results=results)
