"""The topics that coordinators keep their state in, created when they are first needed.

The configs are those that Kafka's AutoTopicCreationManager gives them. If the cluster has fewer brokers than the
replication factor asks for, those that are down included, the topic gets one replica on each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.settings.config import BrokerConfig

if TYPE_CHECKING:
    from ottla.metadata.changes.topic_changes import NewTopic

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"


def internal_topic(name: str, config: BrokerConfig, brokers: int) -> NewTopic:
    """The topic to create for one of INTERNAL_TOPICS."""
    from ottla.metadata.changes.topic_changes import NewTopic

    if name == CONSUMER_OFFSETS:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            min(config.offsets_topic_replication_factor, brokers),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": _segment_bytes(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE:
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            min(config.transaction_state_log_replication_factor, brokers),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(config.transaction_state_log_min_isr, brokers)),
                "segment.bytes": _segment_bytes(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE:
        return NewTopic(
            name,
            config.share_coordinator_state_topic_num_partitions,
            min(config.share_coordinator_state_topic_replication_factor, brokers),
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(min(config.share_coordinator_state_topic_min_isr, brokers)),
                "retention.ms": "-1",
                "segment.bytes": _segment_bytes(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    raise ValueError(f"{name} is not an internal topic")


def _segment_bytes(configured: int) -> str:
    """The broker's setting may be as small as one byte and a topic's may not."""
    return str(max(configured, 1_048_576))
