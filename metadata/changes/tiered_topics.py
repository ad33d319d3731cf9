"""Which settings a tiered topic may have, in Kafka's sentences (`LogConfig.validateTopicLogConfigValues`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.metadata.errors import InvalidConfigError
from ottla.metadata.image import ConfigResource, ResourceType

if TYPE_CHECKING:
    from ottla.settings.config import TopicConfig

__all__ = ["check_end_of_tiering", "check_tiered"]

_AS_A_WHOLE: Final = -2
_NO_LIMIT: Final = -1


def check_tiered(topic: TopicConfig) -> None:
    """Raise InvalidConfigError unless a topic may be tiered with these settings."""
    if not topic.broker.ottla_remote_url:
        raise InvalidConfigError(
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured "
            "with remote log storage."
        )
    if topic.cleanup_policy not in ((), ("delete",)):
        raise InvalidConfigError(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
    _check_local("bytes", topic.local_retention_bytes, topic.retention_bytes)
    _check_local("ms", topic.local_retention_ms, topic.retention_ms)
    if topic.remote_log_copy_disable:
        _check_not_copied("bytes", topic.local_retention_bytes, topic.retention_bytes)
        _check_not_copied("ms", topic.local_retention_ms, topic.retention_ms)
    _check_copy_lag("bytes", topic.remote_copy_lag_bytes, topic.local_retention_bytes, topic.retention_bytes)
    _check_copy_lag("ms", topic.remote_copy_lag_ms, topic.local_retention_ms, topic.retention_ms)


def check_end_of_tiering(resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raise InvalidConfigError if a topic is tiered no longer and nobody has said what is to become of its objects."""
    if resource.type is not ResourceType.TOPIC or not _is_true(before, "remote.storage.enable"):
        return
    if not _is_true(after, "remote.storage.enable") and not _is_true(after, "remote.log.delete.on.disable"):
        raise InvalidConfigError(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data "
            "and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want "
            "to disable remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def _is_true(configs: Mapping[str, str], name: str) -> bool:
    return configs.get(name, "").strip().lower() == "true"


def _check_local(unit: str, local: int, whole: int) -> None:
    if whole == _NO_LIMIT or local == _AS_A_WHOLE:
        return
    told = f"Invalid value {local} for configuration local.retention.{unit}: Value must not be "
    if local == _NO_LIMIT:
        raise InvalidConfigError(f"{told}-1 as retention.{unit} value is set as {whole}.")
    if local > whole:
        raise InvalidConfigError(f"{told}more than retention.{unit} property value: {whole}")


def _check_not_copied(unit: str, local: int, whole: int) -> None:
    if local not in (_AS_A_WHOLE, whole):
        raise InvalidConfigError(
            f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and `retention.{unit}` must "
            "be set to the identical value because there will be no more logs copied to the remote storage."
        )


def _check_copy_lag(unit: str, lag: int, local: int, whole: int) -> None:
    kept = whole if local == _AS_A_WHOLE else local
    if kept >= 0 and lag > kept:
        raise InvalidConfigError(
            f"Invalid value {lag} for configuration remote.copy.lag.{unit}: Value must not exceed "
            f"local.retention.{unit} (effective value: {kept})"
        )
