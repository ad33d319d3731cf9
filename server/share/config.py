"""The settings of share groups that their partitions' leaders obey."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.metadata.features import DEAD_LETTER_QUEUES, SHARE_VERSION
from ottla.metadata.image import ConfigResource, ResourceType

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataView
    from ottla.settings.config import BrokerConfig

_DURATION: Final = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>[\d.]+)S)?)?"
)
_SECONDS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


class ShareConfig(NamedTuple):
    """One group's `share.…` settings, else the broker's `group.share.…`."""

    lock_duration_ms: int = 30_000
    max_records: int = 2_000
    max_delivery_count: int = 5
    is_read_committed: bool = False
    auto_offset_reset: str = "latest"
    may_renew: bool = True
    dead_letter_topic: str = ""
    """The topic of the group's dead-letter queue (KIP-1191); empty if it has none, or the cluster no such queues."""
    copies_dead_letters: bool = False
    """Whether dead letters have the keys and values of the records that they are about."""


class ShareConfigs(Protocol):
    """The settings of each group."""

    def of_share_group(self, group_id: str) -> ShareConfig: ...


class BrokerShareConfigs:
    """The settings of each group as the metadata has them, with the broker's for the rest."""

    def __init__(self, config: BrokerConfig, metadata: MetadataView) -> None:
        self._config = config
        self._metadata = metadata

    def of_share_group(self, group_id: str) -> ShareConfig:
        image = self._metadata.image
        has_dead_letters = image.features.get(SHARE_VERSION, 0) >= DEAD_LETTER_QUEUES
        own = self._config.group_config(image.resource_configs(ConfigResource(ResourceType.GROUP, group_id)))
        return ShareConfig(
            lock_duration_ms=own.share_record_lock_duration_ms,
            max_records=own.share_partition_max_record_locks,
            max_delivery_count=own.share_delivery_count_limit,
            is_read_committed=own.share_isolation_level == "read_committed",
            auto_offset_reset=own.share_auto_offset_reset,
            may_renew=own.share_renew_acknowledge_enable,
            dead_letter_topic=own.errors_deadletterqueue_topic_name if has_dead_letters else "",
            copies_dead_letters=own.errors_deadletterqueue_copy_record_enable,
        )


def duration_ms(auto_offset_reset: str) -> int | None:
    """How far back `by_duration:PnDTnHnMn.nS` goes; None for anything else."""
    matched = _DURATION.fullmatch(auto_offset_reset)
    if matched is None:
        return None
    return round(1000 * sum(float(matched[unit] or 0) * seconds for unit, seconds in _SECONDS.items()))
