"""From the server's settings to those of the coordinators."""

from __future__ import annotations

from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.configs import GroupConfigs
from ottla.coordinator.group.consumer.assignors import assignor_names
from ottla.coordinator.group.consumer.group import ConsumerConfig
from ottla.coordinator.group.migration.policy import MigrationPolicy
from ottla.coordinator.group.share.config import ShareGroupConfig
from ottla.coordinator.group.streams.heartbeat import StreamsGroupConfig
from ottla.coordinator.share.coordinator import ShareCoordinatorConfig
from ottla.coordinator.transaction.coordinator import TransactionConfig
from ottla.metadata.image import ConfigResource, MetadataView, ResourceType
from ottla.settings.config import BrokerConfig
from ottla.settings.config import GroupConfig as OwnConfig


def group_config(config: BrokerConfig) -> GroupConfig:
    """A broker's settings as its group coordinator takes them."""
    return GroupConfig(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        max_size=config.group_max_size,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offsets_topic_partitions=config.offsets_topic_num_partitions,
        consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        consumer_max_size=config.group_consumer_max_size,
        consumer_migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
    )


class BrokerGroupConfigs(GroupConfigs):
    """The settings of each group, as the metadata has them, with the broker's for the rest."""

    def __init__(self, config: BrokerConfig, metadata: MetadataView) -> None:
        super().__init__(group_config(config))
        self._broker = config
        self._metadata = metadata

    def _own(self, group_id: str) -> OwnConfig:
        resource = ConfigResource(ResourceType.GROUP, group_id)
        return self._broker.group_config(self._metadata.image.resource_configs(resource))

    def of_consumer_group(self, group_id: str) -> ConsumerConfig:
        own = self._own(group_id)
        return ConsumerConfig(
            own.consumer_session_timeout_ms,
            own.consumer_heartbeat_interval_ms,
            self._broker.group_consumer_max_size,
            own.consumer_assignment_interval_ms,
            assignor_names(self._broker.group_consumer_assignors),
        )

    def of_share_group(self, group_id: str) -> ShareGroupConfig:
        own = self._own(group_id)
        return ShareGroupConfig(
            own.share_session_timeout_ms,
            own.share_heartbeat_interval_ms,
            self._broker.group_share_max_size,
            own.share_assignment_interval_ms,
            self._broker.group_share_initialize_retry_interval_ms,
        )

    def of_streams_group(self, group_id: str) -> StreamsGroupConfig:
        own = self._own(group_id)
        return StreamsGroupConfig(
            own.streams_session_timeout_ms,
            own.streams_heartbeat_interval_ms,
            self._broker.group_streams_max_size,
            own.streams_assignment_interval_ms,
            own.streams_initial_rebalance_delay_ms,
            own.streams_num_standby_replicas,
            own.streams_task_offset_interval_ms,
            own.streams_acceptable_recovery_lag,
            own.streams_rack_aware_assignment_tags,
        )


def transaction_config(config: BrokerConfig) -> TransactionConfig:
    """A broker's settings as its transaction coordinator takes them."""
    return TransactionConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        topic_partitions=config.transaction_state_log_num_partitions,
        abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        id_expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def share_coordinator_config(config: BrokerConfig) -> ShareCoordinatorConfig:
    """A broker's settings as its share coordinator takes them."""
    return ShareCoordinatorConfig(
        topic_partitions=config.share_coordinator_state_topic_num_partitions,
        updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
        prune_interval_ms=config.share_coordinator_state_topic_prune_interval_ms,
        cold_snapshot_interval_ms=config.share_coordinator_cold_partition_snapshot_interval_ms,
    )
