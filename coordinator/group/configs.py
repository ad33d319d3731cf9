"""The settings of each group: each kind lets a group have some of its own (Kafka's GroupConfigManager)."""

from __future__ import annotations

from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.consumer.group import ConsumerConfig
from ottla.coordinator.group.share.config import ShareGroupConfig
from ottla.coordinator.group.streams.heartbeat import StreamsGroupConfig


class GroupConfigs:
    """The settings of groups that have none of their own. A broker's are `BrokerGroupConfigs`."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config

    def of_consumer_group(self, group_id: str) -> ConsumerConfig:
        return self._config.of_consumer_groups()

    def of_share_group(self, group_id: str) -> ShareGroupConfig:
        return ShareGroupConfig()

    def of_streams_group(self, group_id: str) -> StreamsGroupConfig:
        return StreamsGroupConfig()
