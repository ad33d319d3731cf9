"""Copies of partitions on other brokers, and their leaders."""

from __future__ import annotations

from typing import Final

from ottla.settings.checks import between, one_of
from ottla.settings.declaration import CLUSTER_WIDE, HIGH, boolean, integer, long, string
from ottla.settings.types import INT64_MAX

#: The one selector that Kafka has beside the leader itself.
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicationSettings:
    """Copies of partitions on other brokers, and their leaders."""

    default_replication_factor: int = integer(1, "Replicas of a topic that is created without a number of them.")
    min_insync_replicas: int = integer(
        1,
        "Replicas that must have a record before acks=all is answered.",
        check=between(1),
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Let a replica that may lack records lead, when nothing better is left.",
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    unclean_leader_election_interval_ms: int = long(
        300_000,
        "How often partitions without a leader are looked at for an unclean election.",
        check=between(1),
        internal=True,
    )
    auto_leader_rebalance_enable: bool = boolean(
        True, "Give leadership back to the preferred replica without being asked.", importance=HIGH
    )
    leader_imbalance_check_interval_seconds: int = long(
        300, "How often leadership is looked at for imbalance.", check=between(1), importance=HIGH
    )
    num_replica_fetchers: int = integer(
        1,
        "Connections that a follower opens to each leader.",
        check=between(1),
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    replica_fetch_backoff_ms: int = integer(1000, "Pause of a follower after a failed fetch.", check=between(0))
    replica_fetch_max_bytes: int = integer(1_048_576, "Bytes that a follower asks for per partition.", check=between(0))
    replica_fetch_min_bytes: int = integer(1, "Bytes that a follower waits for.", importance=HIGH)
    replica_fetch_response_max_bytes: int = integer(
        10_485_760, "Bytes that a follower asks for in one fetch.", check=between(0)
    )
    replica_fetch_wait_max_ms: int = integer(500, "Longest wait of a follower's fetch at the leader.", importance=HIGH)
    replica_lag_time_max_ms: int = long(
        30_000,
        "A follower that has not caught up for this long leaves the in-sync replicas.",
        importance=HIGH,
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5000, "How often high watermarks are written down.", importance=HIGH
    )
    replica_selector_class: str | None = string(
        None,
        "Which replica serves a consumer: the leader, or with Kafka's class for it one in sync in the consumer's rack "
        "(its client.rack and their broker.rack).",
        check=one_of(RACK_AWARE_SELECTOR),
    )
    replica_socket_receive_buffer_bytes: int = integer(
        65_536, "Receive buffer of a follower's connection.", importance=HIGH, in_use=False
    )
    replica_socket_timeout_ms: int = integer(
        30_000, "How long a follower waits for its leader's answer.", importance=HIGH
    )
    follower_fetch_last_tiered_offset_enable: bool = boolean(
        False, "Start a new follower at the end of remote storage.", update=CLUSTER_WIDE, in_use=False
    )
    follower_replication_throttled_rate: int = long(
        INT64_MAX,
        "Bytes a second that a follower may copy for throttled partitions.",
        check=between(0),
        update=CLUSTER_WIDE,
        internal=True,
    )
    leader_replication_throttled_rate: int = long(
        INT64_MAX,
        "Bytes a second that a leader may send for throttled partitions.",
        check=between(0),
        update=CLUSTER_WIDE,
        internal=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        INT64_MAX,
        "Bytes a second for moves between data folders.",
        check=between(0),
        update=CLUSTER_WIDE,
        internal=True,
        in_use=False,
    )
