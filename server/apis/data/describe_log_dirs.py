"""DescribeLogDirs (35): the data folder, how full its disk is, and what each partition takes of it.

- A partition's size is that of its record batches; blocks and indexes are shared by the partitions of a topic and
  not counted, nor is what an object store has (KIP-405: it is the size of the local log). There is one folder and no
  replica on its way to another one.
- Null topics mean all of them; partitions that are not here are left out.
"""

from __future__ import annotations

import os
from collections import defaultdict

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.data.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.metadata.acls import AclOperation
from ottla.server.apis.context import RequestContext
from ottla.server.apis.declaration import Api
from ottla.server.apis.rules import on_cluster
from ottla.server.broker import Broker

API = Api(ApiKey.DESCRIBE_LOG_DIRS, on_cluster(AclOperation.DESCRIBE))


def log_dir(broker: Broker) -> str:
    """The absolute path of the node's data."""
    return os.path.abspath((broker.config.log_dirs or broker.config.log_dir)[0])


async def handle(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    broker = context.broker
    work = context.work
    asked = None
    if request.topics is not None:
        asked = {
            (topic.topic, number)
            async for topic in work.over(request.topics, counts=False)
            async for number in work.over(topic.partitions, counts=False)
        }
    await broker.replica_manager.unopened.wait_for_all()
    topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for partition in broker.replica_manager.partitions():
        await work.charge()
        if asked is None or (partition.topic, partition.index) in asked:
            log = partition.log
            topics[partition.topic].append(
                DescribeLogDirsPartition(
                    partition_index=partition.index,
                    partition_size=log.size_bytes,
                    offset_lag=max(0, log.high_watermark - log.log_end_offset),
                )
            )
    path = log_dir(broker)
    total_bytes, usable_bytes = disk_space(path)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=path,
                topics=[DescribeLogDirsTopic(name=name, partitions=them) for name, them in topics.items()],
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ]
    )


def disk_space(path: str) -> tuple[int, int]:
    """Total and usable bytes of the disk, each -1 if there is none (a broker that keeps everything in memory)."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return -1, -1
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
