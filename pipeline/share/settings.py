"""What a share group's settings say about its records."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.pipeline.client import Cluster
from ottla.pipeline.client.answers import check
from ottla.pipeline.client.cluster import CoordinatorType

__all__ = ["GroupSettings", "GroupSettingsReader", "Progress", "group_progress"]

_GROUP_RESOURCE: Final = 32
_LIMIT: Final = "share.delivery.count.limit"
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
# The broker's default.
_DEFAULT_SESSION_TIMEOUT_MS: Final = 45_000
_NOT_ALLOWED: Final = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_FRESH_S: Final = 30.0
_DESCRIBE_OFFSETS: Final = 1


class GroupSettings(NamedTuple):
    """How often a record is delivered at most, and the topic of those that are given up; None where nobody says it.

    After the session timeout the group knows that a member is dead.
    """

    delivery_limit: int | None = None
    dead_letter_topic: str | None = None
    session_timeout_ms: int = _DEFAULT_SESSION_TIMEOUT_MS


class GroupSettingsReader:
    """Asks for a group's settings, again after half a minute."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._resource = DescribeConfigsResource(
            resource_type=_GROUP_RESOURCE,
            resource_name=group,
            configuration_keys=[_LIMIT, _DEAD_LETTERS, _SESSION_TIMEOUT],
        )
        self._known = GroupSettings()
        self._asked_at: float | None = None

    def read(self) -> GroupSettings:
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at > _FRESH_S:
            self._known = self._cluster.retry(self._ask)
            self._asked_at = now
        return self._known

    def _ask(self) -> GroupSettings:
        (result,) = self._cluster.call(DescribeConfigsRequest(resources=[self._resource])).results
        if result.error_code in _NOT_ALLOWED:
            return GroupSettings()
        check(result.error_code, f"the settings of share group {self._resource.resource_name}")
        found = {entry.name: entry.value for entry in result.configs}
        limit = found.get(_LIMIT)
        return GroupSettings(
            int(limit) if limit else None,
            found.get(_DEAD_LETTERS) or None,
            int(found.get(_SESSION_TIMEOUT) or _DEFAULT_SESSION_TIMEOUT_MS),
        )


class Progress(NamedTuple):
    """Where the group's records in a partition begin that are not over, and how many there are; -1 if nobody knows."""

    start_offset: int = -1
    lag: int = -1


def group_progress(cluster: Cluster, group: str) -> dict[tuple[str, int], Progress]:
    """How far the group is with each partition, by the ids of topics."""
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
    )

    def ask() -> dict[tuple[str, int], Progress]:
        answer = cluster.call_coordinator(CoordinatorType.GROUP, group, request, _DESCRIBE_OFFSETS)
        (found,) = answer.groups
        check(found.error_code, f"share group {group}")
        return {
            (str(topic.topic_id), part.partition_index): Progress(part.start_offset, part.lag)
            for topic in found.topics
            for part in topic.partitions
        }

    return cluster.retry(ask)
