"""Settings of one topic; what a topic does not set, its broker decides."""

from __future__ import annotations

from typing import Final

from ottla.settings.checks import GZIP_LEVEL, THROTTLED_REPLICAS, Check, any_of, between, matching, one_of
from ottla.settings.declaration import boolean, double, integer, long, string, strings
from ottla.settings.mirrored import check_mirror
from ottla.settings.types import INT64_MAX, MAX_DECOMPRESSED_BYTES

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


def _is_no_internal_name(name: str) -> bool:
    return not name.startswith("__")


class TopicSettings:
    """Settings of one topic; what a topic does not set, its broker decides."""

    cleanup_policy: tuple[str, ...] = strings(
        ("delete",),
        "delete drops old records, compact keeps the last of each key; both may be given.",
        check=any_of("compact", "delete"),
        broker="log.cleanup.policy",
    )
    compression_type: str = string(
        "producer",
        "Codec that batches are kept in; producer keeps what the producer chose.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker="compression.type",
    )
    compression_gzip_level: int = integer(
        -1,
        "Level of gzip where the broker compresses.",
        check=GZIP_LEVEL,
        broker="compression.gzip.level",
        in_use=False,
    )
    compression_lz4_level: int = integer(
        9,
        "Level of lz4 where the broker compresses.",
        check=between(1, 17),
        broker="compression.lz4.level",
        in_use=False,
    )
    compression_zstd_level: int = integer(
        3,
        "Level of zstd where the broker compresses.",
        check=between(-131_072, 22),
        broker="compression.zstd.level",
        in_use=False,
    )
    errors_deadletterqueue_group_enable: bool = boolean(
        False, "Whether share groups may use the topic as their dead-letter queue."
    )
    delete_retention_ms: int = long(
        86_400_000,
        "How long a deletion marker stays readable when the topic is compacted.",
        check=between(0),
        broker="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = long(
        60_000,
        "How long the files of a deleted segment stay on disk.",
        check=between(0),
        broker="log.segment.delete.delay.ms",
        in_use=False,
    )
    flush_messages: int = long(
        INT64_MAX,
        "Sync a partition to disk after this many records; 1 syncs before each acknowledgement.",
        check=between(1),
        broker="log.flush.interval.messages",
    )
    flush_ms: int = long(
        INT64_MAX,
        "Longest time that a record stays unsynced.",
        check=between(0),
        broker=(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = strings(
        (),
        "Replicas whose followers copy under follower.replication.throttled.rate.",
        check=THROTTLED_REPLICAS,
    )
    index_interval_bytes: int = integer(
        4096,
        "Bytes of log per index entry in Kafka; Ottla has an index record for each run.",
        check=between(0),
        broker="log.index.interval.bytes",
        in_use=False,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = strings(
        (),
        "Replicas whose leaders send under leader.replication.throttled.rate.",
        check=THROTTLED_REPLICAS,
    )
    local_retention_bytes: int = long(
        -2,
        "Bytes kept locally once a segment is in remote storage.",
        check=between(-2),
        broker="log.local.retention.bytes",
    )
    local_retention_ms: int = long(
        -2,
        "How long records are kept locally once they are in remote storage.",
        check=between(-2),
        broker="log.local.retention.ms",
    )
    max_compaction_lag_ms: int = long(
        INT64_MAX,
        "A record older than this makes its log due for compaction.",
        check=between(1),
        broker="log.cleaner.max.compaction.lag.ms",
    )
    max_decompressed_message_bytes: int = integer(
        MAX_DECOMPRESSED_BYTES,
        "Largest record that is accepted in a compressed batch, in its decompressed size; any limit has such batches "
        "looked into.",
        check=between(1, MAX_DECOMPRESSED_BYTES),
        broker="max.decompressed.message.bytes",
    )
    max_message_bytes: int = integer(
        1_048_588,
        "Largest record batch that is accepted, in its compressed size.",
        check=between(0),
        broker="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = long(
        3_600_000,
        "How far a record's timestamp may lie after the broker's clock.",
        check=between(0),
        broker="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = long(
        INT64_MAX,
        "How far a record's timestamp may lie before the broker's clock.",
        check=between(0),
        broker="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "CreateTime keeps the producer's timestamps, LogAppendTime replaces them with the broker's.",
        check=one_of("CreateTime", "LogAppendTime"),
        broker="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "Share of a log that must be uncompacted before it is compacted.",
        check=between(0, 1),
        broker="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = long(
        0,
        "A record younger than this is never compacted away.",
        check=between(0),
        broker="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = integer(
        1,
        "Replicas that must have a record before acks=all is answered.",
        check=between(1),
        broker="min.insync.replicas",
    )
    preallocate: bool = boolean(
        False, "Allocate a segment's whole file when it is begun.", broker="log.preallocate", in_use=False
    )
    remote_log_copy_disable: bool = boolean(False, "Copy nothing more to remote storage.")
    remote_copy_lag_bytes: int = long(
        -1,
        "Bytes that follow a segment before it is copied to remote storage; -1: as many as are kept locally.",
        check=between(-1),
        broker="log.remote.copy.lag.bytes",
    )
    remote_copy_lag_ms: int = long(
        0,
        "How old a segment is when it is copied to remote storage; -1: as old as it gets locally.",
        check=between(-1),
        broker="log.remote.copy.lag.ms",
    )
    remote_log_delete_on_disable: bool = boolean(False, "Delete what is in remote storage when it is turned off.")
    remote_storage_enable: bool = boolean(False, "Keep older segments of the topic in remote storage.")
    retention_bytes: int = long(
        -1, "Bytes that each partition keeps at most; -1 means no limit.", broker="log.retention.bytes"
    )
    retention_ms: int = long(
        604_800_000,
        "How long records are kept; -1 is forever.",
        check=between(-1),
        broker=(("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)),
    )
    segment_bytes: int = integer(
        1_073_741_824,
        "Size at which a segment is sealed and the next one begins.",
        check=between(1_048_576),
        broker="log.segment.bytes",
    )
    internal_segment_bytes: int = integer(
        0,
        "If not 0, the segment size instead of `segment.bytes`, and it may be smaller: for tests.",
        check=between(0),
        internal=True,
    )
    segment_index_bytes: int = integer(
        10_485_760,
        "Largest index file in Kafka; Ottla's index grows with its segment.",
        check=between(4),
        broker="log.index.size.max.bytes",
        in_use=False,
    )
    segment_jitter_ms: int = long(
        0,
        "Most that is taken off segment.ms at random.",
        check=between(0),
        broker=(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
        in_use=False,
    )
    segment_ms: int = long(
        604_800_000,
        "Age at which a segment is sealed.",
        check=between(1),
        broker=(("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Let a replica that may lack records lead, when nothing better is left.",
        broker="unclean.leader.election.enable",
    )
    ottla_records_validate: str = string(
        "header",
        "What is checked in a producer's batch: header, or all: every record in it, as in Kafka.",
        check=one_of("header", "all"),
        broker="ottla.records.validate",
    )
    ottla_value_schema_validation: str = string(
        "none",
        "What is asked of values before they are appended: none; id: that they begin with the id of a schema in their "
        "subject; value: that their bytes fit it, too. Needs a schema registry (docs/registry.md).",
        check=one_of("none", "id", "value"),
    )
    ottla_value_subject_name_strategy: str = string(
        "topic",
        "The subject that has the schemas of values: topic (<topic>-value), record (the record's full name) or "
        "topic-record (<topic>-<full name>).",
        check=one_of("topic", "record", "topic-record"),
    )
    ottla_key_schema_validation: str = string(
        "none",
        "The same as ottla.value.schema.validation, of keys.",
        check=one_of("none", "id", "value"),
    )
    ottla_key_subject_name_strategy: str = string(
        "topic",
        "The subject that has the schemas of keys: topic (<topic>-key), record or topic-record.",
        check=one_of("topic", "record", "topic-record"),
    )
    ottla_schema_validation_dead_letter_topic: str = string(
        "",
        "The topic to which records go that do not fit their schemas; empty: their batches are refused. It must exist, "
        "and its producers need the right to write to it (docs/registry.md).",
        check=matching(_is_no_internal_name, "must not start with '__'", "a topic's name that does not start with __"),
    )
    ottla_mirror: str = string(
        "",
        "Set while the topic is a copy that clients may only read: following or ending, and the source topic's id. "
        "`ottla mirror` begins and ends it.",
        check=Check(check_mirror, "following <topic id> | ending <topic id>"),
        internal=True,
    )
