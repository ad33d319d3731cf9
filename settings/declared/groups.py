"""Consumer, streams and share groups, and the offsets that they commit."""

from __future__ import annotations

from typing import Final

from ottla.settings.checks import NO_EMPTY_VALUES, any_of, between, one_of
from ottla.settings.declaration import CLUSTER_WIDE, HIGH, LOW, integer, java_class, long, short, string, strings
from ottla.settings.types import INT32_MAX

_KAFKAS: Final = "org.apache.kafka.coordinator.group.assignor."
_CONSUMER_ASSIGNORS: Final = ("uniform", "range", f"{_KAFKAS}UniformAssignor", f"{_KAFKAS}RangeAssignor")
_SHARE_ASSIGNORS: Final = ("simple", f"{_KAFKAS}SimpleAssignor")
_STREAMS_ASSIGNORS: Final = ("sticky", "org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor")


def streams_assignor_names(configured: tuple[str, ...]) -> tuple[str, ...]:
    """The names in groups of the assignors in `group.streams.assignors`, which may name their classes."""
    return tuple(_STREAMS_ASSIGNORS[0] for _ in configured)


class GroupCoordinatorSettings:
    """Consumer, streams and share groups, and the offsets that they commit."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = strings(
        ("classic", "consumer", "streams"),
        "Group protocols that are offered. Classic groups always are; whether share groups are, `share.version` says.",
        check=any_of("consumer", "classic", "share", "streams"),
    )
    group_coordinator_append_linger_ms: int = integer(
        -1,
        "How long Kafka's coordinator gathers writes; Ottla's group commit needs no timer.",
        check=between(-1),
        in_use=False,
    )
    group_coordinator_cached_buffer_max_bytes: int = integer(
        1_048_588,
        "Largest write buffer that Kafka's coordinator keeps.",
        check=between(524_288),
        update=CLUSTER_WIDE,
        in_use=False,
    )
    group_coordinator_threads: int = integer(
        4,
        "Coordinator threads in Kafka; an Ottla node is one event loop.",
        check=between(1),
        importance=HIGH,
        in_use=False,
    )
    group_coordinator_background_threads: int = integer(
        2,
        "Threads of Kafka's coordinator for slow work such as patterns.",
        check=between(1),
        importance=HIGH,
        in_use=False,
    )
    group_initial_rebalance_delay_ms: int = integer(
        3000, "How long a new classic group waits for more members before its first rebalance."
    )
    group_min_session_timeout_ms: int = integer(6000, "Shortest session timeout that a classic member may ask for.")
    group_max_session_timeout_ms: int = integer(1_800_000, "Longest session timeout that a classic member may ask for.")
    group_max_size: int = integer(INT32_MAX, "Most members of a classic group.", check=between(1))
    group_consumer_assignors: tuple[str, ...] = strings(
        ("uniform", "range"),
        "Assignors that members of the consumer protocol may name, the first is the default.",
        check=any_of(*_CONSUMER_ASSIGNORS, least=1),
    )
    group_consumer_assignment_interval_ms: int = integer(
        1000,
        "Least time between two assignments of a consumer group.",
        check=between(0),
        update=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        0, "Lower bound of a consumer group's own assignment interval.", check=between(0)
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        15_000, "Upper bound of a consumer group's own assignment interval.", check=between(0)
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5000, "Heartbeat interval that consumer-protocol members are told.", check=between(1)
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5000, "Lower bound of a consumer group's own heartbeat interval.", check=between(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15_000, "Upper bound of a consumer group's own heartbeat interval.", check=between(1)
    )
    group_consumer_session_timeout_ms: int = integer(
        45_000, "A consumer-protocol member that is silent for this long is removed.", check=between(1)
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45_000, "Lower bound of a consumer group's own session timeout.", check=between(1)
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60_000, "Upper bound of a consumer group's own session timeout.", check=between(1)
    )
    group_consumer_max_size: int = integer(INT32_MAX, "Most members of a consumer group.", check=between(1))
    group_consumer_migration_policy: str = string(
        "bidirectional",
        "Which way groups may change between the classic and the consumer protocol while they run.",
        check=one_of("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL", ignore_case=True),
    )
    group_consumer_regex_refresh_interval_ms: int = integer(
        600_000,
        "How often topic patterns of consumer groups are matched again.",
        check=between(10_000),
        internal=True,
        in_use=False,
    )
    group_share_assignors: tuple[str, ...] = strings(
        ("simple",), "The assignor of share groups; there is one.", check=any_of(*_SHARE_ASSIGNORS, least=1, most=1)
    )
    group_share_assignment_interval_ms: int = integer(
        1000,
        "Least time between two assignments of a share group.",
        check=between(0),
        update=CLUSTER_WIDE,
    )
    group_share_min_assignment_interval_ms: int = integer(
        0, "Lower bound of a share group's own assignment interval.", check=between(0)
    )
    group_share_max_assignment_interval_ms: int = integer(
        15_000, "Upper bound of a share group's own assignment interval.", check=between(0)
    )
    group_share_delivery_count_limit: int = integer(
        5, "How often a record is delivered to a share group before it is given up.", check=between(2, 10)
    )
    group_share_min_delivery_count_limit: int = integer(
        2, "Lower bound of a share group's own delivery limit.", check=between(2, 5)
    )
    group_share_max_delivery_count_limit: int = integer(
        10, "Upper bound of a share group's own delivery limit.", check=between(5, 25)
    )
    group_share_heartbeat_interval_ms: int = integer(
        5000, "Heartbeat interval that share-group members are told.", check=between(1)
    )
    group_share_min_heartbeat_interval_ms: int = integer(
        5000, "Lower bound of a share group's own heartbeat interval.", check=between(1)
    )
    group_share_max_heartbeat_interval_ms: int = integer(
        15_000, "Upper bound of a share group's own heartbeat interval.", check=between(1)
    )
    group_share_initialize_retry_interval_ms: int = integer(
        30_000,
        "Pause before a share partition's state is initialized again after a failure.",
        check=between(1),
        importance=LOW,
        internal=True,
    )
    group_share_partition_max_record_locks: int = integer(
        2000,
        "Most records of a partition that a share group holds at one time.",
        check=between(100, 10_000),
    )
    group_share_min_partition_max_record_locks: int = integer(
        100, "Lower bound of a share group's own limit of held records.", check=between(100, 2000)
    )
    group_share_max_partition_max_record_locks: int = integer(
        4000, "Upper bound of a share group's own limit of held records.", check=between(2000, 10_000)
    )
    group_share_persister_class_name: str = string(
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "Class that keeps share-group state in Kafka.",
        internal=True,
        in_use=False,
    )
    group_share_record_lock_duration_ms: int = integer(
        30_000,
        "How long a delivered record stays locked for its consumer.",
        check=between(1000, 3_600_000),
    )
    group_share_min_record_lock_duration_ms: int = integer(
        15_000, "Lower bound of a share group's own lock duration.", check=between(1000, 30_000)
    )
    group_share_max_record_lock_duration_ms: int = integer(
        60_000, "Upper bound of a share group's own lock duration.", check=between(30_000, 3_600_000)
    )
    group_share_session_timeout_ms: int = integer(
        45_000, "A share-group member that is silent for this long is removed.", check=between(1)
    )
    group_share_min_session_timeout_ms: int = integer(
        45_000, "Lower bound of a share group's own session timeout.", check=between(1)
    )
    group_share_max_session_timeout_ms: int = integer(
        60_000, "Upper bound of a share group's own session timeout.", check=between(1)
    )
    group_share_max_share_sessions: int = integer(2000, "Most share sessions on one broker.", check=between(1))
    group_share_max_size: int = integer(200, "Most members of a share group.", check=between(1, 1000))
    group_streams_assignment_interval_ms: int = integer(
        1000,
        "Least time between two assignments of a streams group.",
        check=between(0),
        update=CLUSTER_WIDE,
    )
    group_streams_min_assignment_interval_ms: int = integer(
        0, "Lower bound of a streams group's own assignment interval.", check=between(0)
    )
    group_streams_max_assignment_interval_ms: int = integer(
        15_000, "Upper bound of a streams group's own assignment interval.", check=between(0)
    )
    group_streams_heartbeat_interval_ms: int = integer(
        5000, "Heartbeat interval that streams-group members are told.", check=between(1)
    )
    group_streams_min_heartbeat_interval_ms: int = integer(
        5000, "Lower bound of a streams group's own heartbeat interval.", check=between(1)
    )
    group_streams_max_heartbeat_interval_ms: int = integer(
        15_000, "Upper bound of a streams group's own heartbeat interval.", check=between(1)
    )
    group_streams_initial_rebalance_delay_ms: int = integer(
        3000,
        "How long a new streams group waits for more members before its first assignment.",
        check=between(0),
    )
    group_streams_session_timeout_ms: int = integer(
        45_000, "A streams-group member that is silent for this long is removed.", check=between(1)
    )
    group_streams_min_session_timeout_ms: int = integer(
        45_000, "Lower bound of a streams group's own session timeout.", check=between(1)
    )
    group_streams_max_session_timeout_ms: int = integer(
        60_000, "Upper bound of a streams group's own session timeout.", check=between(1)
    )
    group_streams_max_size: int = integer(INT32_MAX, "Most members of a streams group.", check=between(1))
    group_streams_num_standby_replicas: int = integer(
        0, "Standby replicas of each task of a streams group.", check=between(0)
    )
    group_streams_max_standby_replicas: int = integer(
        2, "Upper bound of a streams group's own number of standby replicas.", check=between(0)
    )
    group_streams_num_warmup_replicas: int = integer(
        2,
        "Warm-up replicas of a streams group; none are handed out yet.",
        check=between(0),
        internal=True,
        in_use=False,
    )
    group_streams_max_warmup_replicas: int = integer(
        20,
        "Upper bound of a streams group's own number of warm-up replicas.",
        check=between(0),
        internal=True,
        in_use=False,
    )
    group_streams_acceptable_recovery_lag: int = long(
        10_000,
        "How far behind its changelogs a streams-group member may be and still count as caught up, in offsets.",
        check=between(0),
        internal=True,
    )
    group_streams_task_offset_interval_ms: int = integer(
        60_000,
        "How often streams-group members are to report the offsets of their tasks.",
        check=between(1),
        internal=True,
    )
    group_streams_min_task_offset_interval_ms: int = integer(
        15_000, "Lower bound of a streams group's own interval of task offsets.", check=between(1), internal=True
    )
    group_streams_assignors: tuple[str, ...] = strings(
        ("sticky",), "The assignor of streams groups; there is one.", check=any_of(*_STREAMS_ASSIGNORS, least=1, most=1)
    )
    group_streams_rack_aware_assignment_tags: tuple[str, ...] = strings(
        (),
        "Client tags that the members of streams groups must have: who lacks one is told so.",
        check=NO_EMPTY_VALUES,
        importance=LOW,
    )
    group_streams_topology_description_plugin_class: str | None = java_class(
        None,
        "Class that keeps descriptions of topologies in Kafka; Ottla keeps them with the groups.",
        in_use=False,
    )
    offset_metadata_max_bytes: int = integer(
        4096, "Longest text that may be committed with an offset.", importance=HIGH
    )
    offsets_commit_timeout_ms: int = integer(
        5000,
        "How long a commit waits for the replicas of the offsets topic.",
        check=between(1),
        importance=HIGH,
        in_use=False,
    )
    offsets_load_buffer_size: int = integer(
        5_242_880,
        "Bytes read at a time when committed offsets are loaded.",
        check=between(1),
        importance=HIGH,
        in_use=False,
    )
    offsets_retention_check_interval_ms: int = long(
        600_000, "How often expired offsets are looked for.", check=between(1), importance=HIGH
    )
    offsets_retention_minutes: int = integer(
        10_080,
        "Minutes that the offsets of an empty group or of a lone consumer are kept.",
        check=between(1),
        importance=HIGH,
    )
    offsets_topic_compression_codec: int = integer(
        0, "Codec number of the offsets topic's batches.", importance=HIGH, in_use=False
    )
    offsets_topic_num_partitions: int = integer(
        50, "Partitions of the offsets topic; fixed once it exists.", check=between(1), importance=HIGH
    )
    offsets_topic_replication_factor: int = short(
        3, "Replicas of the offsets topic; a smaller cluster takes what it has.", check=between(1), importance=HIGH
    )
    offsets_topic_segment_bytes: int = integer(
        104_857_600, "Segment size of the offsets topic.", check=between(1), importance=HIGH
    )
