"""Settings of one group; what a group does not set, its broker decides. And those of client metrics."""

from __future__ import annotations

import re
from typing import Final

from ottla.settings.checks import NO_EMPTY_VALUES, between, matching, one_of
from ottla.settings.declaration import LOW, boolean, integer, long, string, strings

_DURATION: Final = re.compile(r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,9})?S)?)?")


def _is_share_offset_reset(value: str) -> bool:
    return value in ("earliest", "latest") or _DURATION.fullmatch(value) is not None


class GroupSettings:
    """Settings of one group; what a group does not set, its broker decides."""

    consumer_assignment_interval_ms: int = integer(
        1000,
        "Least time between two assignments of the consumer group.",
        check=between(0),
        broker="group.consumer.assignment.interval.ms",
    )
    consumer_heartbeat_interval_ms: int = integer(
        5000,
        "Heartbeat interval that the consumer group's members are told.",
        check=between(1),
        broker="group.consumer.heartbeat.interval.ms",
    )
    consumer_session_timeout_ms: int = integer(
        45_000,
        "A member of the consumer group that is silent for this long is removed.",
        check=between(1),
        broker="group.consumer.session.timeout.ms",
    )
    errors_deadletterqueue_topic_name: str = string(
        "", "The topic of the share group's dead-letter queue; empty: it has none (KIP-1191)."
    )
    errors_deadletterqueue_copy_record_enable: bool = boolean(
        False, "Whether dead letters have the keys and values of the records that they are about."
    )
    share_assignment_interval_ms: int = integer(
        1000,
        "Least time between two assignments of the share group.",
        check=between(0),
        broker="group.share.assignment.interval.ms",
    )
    share_auto_offset_reset: str = string(
        "latest",
        "Where a new share group begins: latest, earliest, or by_duration: and how far back, as ISO 8601.",
        check=matching(
            _is_share_offset_reset,
            "share.auto.offset.reset must be one of earliest, latest, by_duration:PnDTnHnMn.nS",
            "latest | earliest | by_duration:PnDTnHnMn.nS",
        ),
    )
    share_delivery_count_limit: int = integer(
        5,
        "How often a record is delivered to the share group before it is given up.",
        check=between(2),
        broker="group.share.delivery.count.limit",
    )
    share_heartbeat_interval_ms: int = integer(
        5000,
        "Heartbeat interval that the share group's members are told.",
        check=between(1),
        broker="group.share.heartbeat.interval.ms",
    )
    share_isolation_level: str = string(
        "read_uncommitted",
        "Whether the share group sees records of transactions that are not committed.",
        check=one_of("read_committed", "read_uncommitted"),
    )
    share_partition_max_record_locks: int = integer(
        2000,
        "Most records of a partition that the share group holds at one time.",
        check=between(100),
        broker="group.share.partition.max.record.locks",
    )
    share_record_lock_duration_ms: int = integer(
        30_000,
        "How long a delivered record stays locked for its consumer.",
        check=between(1000),
        broker="group.share.record.lock.duration.ms",
    )
    share_renew_acknowledge_enable: bool = boolean(
        True, "Let consumers of the share group prolong the lock of a record."
    )
    share_session_timeout_ms: int = integer(
        45_000,
        "A member of the share group that is silent for this long is removed.",
        check=between(1),
        broker="group.share.session.timeout.ms",
    )
    streams_assignment_interval_ms: int = integer(
        1000,
        "Least time between two assignments of the streams group.",
        check=between(0),
        broker="group.streams.assignment.interval.ms",
    )
    streams_heartbeat_interval_ms: int = integer(
        5000,
        "Heartbeat interval that the streams group's members are told.",
        check=between(1),
        broker="group.streams.heartbeat.interval.ms",
    )
    streams_initial_rebalance_delay_ms: int = integer(
        3000,
        "How long the new streams group waits for more members before its first assignment.",
        check=between(0),
        broker="group.streams.initial.rebalance.delay.ms",
    )
    streams_num_standby_replicas: int = integer(
        0,
        "Standby replicas of each task of the streams group.",
        check=between(0),
        broker="group.streams.num.standby.replicas",
    )
    streams_num_warmup_replicas: int = integer(
        2,
        "Warm-up replicas of the streams group; none are handed out yet.",
        check=between(0),
        broker="group.streams.num.warmup.replicas",
        internal=True,
        in_use=False,
    )
    streams_acceptable_recovery_lag: int = long(
        10_000,
        "How far behind its changelogs a member of the streams group may be and still count as caught up, in offsets.",
        check=between(0),
        broker="group.streams.acceptable.recovery.lag",
        internal=True,
    )
    streams_task_offset_interval_ms: int = integer(
        60_000,
        "How often members of the streams group are to report the offsets of their tasks.",
        check=between(1),
        broker="group.streams.task.offset.interval.ms",
        internal=True,
    )
    streams_assignor_name: str | None = string(
        None,
        "The assignor of the streams group, one of group.streams.assignors; there is one.",
        in_use=False,
        broker="group.streams.assignors",
    )
    streams_rack_aware_assignment_tags: tuple[str, ...] = strings(
        (),
        "Client tags that members of the streams group must have: who lacks one is told so.",
        check=NO_EMPTY_VALUES,
        importance=LOW,
        broker="group.streams.rack.aware.assignment.tags",
    )
    streams_session_timeout_ms: int = integer(
        45_000,
        "A member of the streams group that is silent for this long is removed.",
        check=between(1),
        broker="group.streams.session.timeout.ms",
    )


class ClientMetricsSettings:
    """A subscription to metrics that clients push (KIP-714)."""

    interval_ms: int = integer(300_000, "How often matching clients push their metrics.", check=between(100, 3_600_000))
    match: tuple[str, ...] = strings(
        (), "Which clients: selector=pattern pairs, all of which must match; empty is every client."
    )
    metrics: tuple[str, ...] = strings((), "Prefixes of the metrics that are asked for; * is all of them.")
