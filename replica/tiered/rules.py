"""What a tiered topic's settings ask of its partitions. Every node loads this, and none the rest without need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.settings.config import TopicConfig

__all__ = ["RemoteRules", "is_given_up", "remote_rules"]

_AS_A_WHOLE: Final = -2
"""`local.retention.*`: what `retention.*` says."""


class RemoteRules(NamedTuple):
    """A tiered topic's settings. Times in milliseconds, sizes in bytes, -1 is no limit.

    `is_copied` is false with `remote.log.copy.disable`. A segment is copied when it is older than `copy_lag_ms`, or
    when more than `copy_lag_bytes` follow it (KIP-1241).
    """

    is_deleted: bool = True
    retention_ms: int = -1
    retention_bytes: int = -1
    local_retention_ms: int = -1
    local_retention_bytes: int = -1
    is_copied: bool = True
    copy_lag_ms: int = 0
    copy_lag_bytes: int = -1


def remote_rules(topic: TopicConfig) -> RemoteRules | None:
    """The rules of a topic with `remote.storage.enable`; None for any other, and for a mirror."""
    if not topic.remote_storage_enable or topic.ottla_mirror:
        return None
    local_ms, local_bytes = topic.local_retention_ms, topic.local_retention_bytes
    if local_ms == _AS_A_WHOLE:
        local_ms = topic.retention_ms
    if local_bytes == _AS_A_WHOLE:
        local_bytes = topic.retention_bytes
    return RemoteRules(
        is_deleted="delete" in topic.cleanup_policy,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
        local_retention_ms=local_ms,
        local_retention_bytes=local_bytes,
        is_copied=not topic.remote_log_copy_disable,
        copy_lag_ms=local_ms if topic.remote_copy_lag_ms < 0 else topic.remote_copy_lag_ms,
        copy_lag_bytes=local_bytes if topic.remote_copy_lag_bytes < 0 else topic.remote_copy_lag_bytes,
    )


def is_given_up(topic: TopicConfig) -> bool:
    """Whether nothing of a topic is to be left in the object store (`remote.log.delete.on.disable`)."""
    return topic.remote_log_delete_on_disable and not topic.remote_storage_enable
