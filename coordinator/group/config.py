"""The settings of the group coordinator."""

from typing import Final, NamedTuple

from ottla.coordinator.group.classic.rebalance import ClassicConfig
from ottla.coordinator.group.consumer.group import ConsumerConfig
from ottla.coordinator.group.migration.policy import MigrationPolicy

OFFSETS_TOPIC: Final = "__consumer_offsets"


class GroupConfig(NamedTuple):
    """The broker settings for groups; the names are Kafka's (`group.…`, `offset.…`, `offsets.…`)."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_partitions: int = 50
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignment_interval_ms: int = 0
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    def of_classic_groups(self) -> ClassicConfig:
        """The settings of all classic groups."""
        return ClassicConfig(
            self.initial_rebalance_delay_ms, self.max_size, self.min_session_timeout_ms, self.max_session_timeout_ms
        )

    def of_consumer_groups(self) -> ConsumerConfig:
        """The settings of a consumer group that has none of its own."""
        return ConsumerConfig(
            self.consumer_session_timeout_ms,
            self.consumer_heartbeat_interval_ms,
            self.consumer_max_size,
            self.consumer_assignment_interval_ms,
        )
