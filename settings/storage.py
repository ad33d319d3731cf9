"""From the server's settings to those of the storage engine."""

from __future__ import annotations

from typing import Final

from ottla.settings.config import BrokerConfig, TopicConfig
from ottla.storage.config import LogConfig, StorageConfig, StoreLayout, TimestampType

_LOG_CONFIG: Final = "_log_config"


def log_config(topic: TopicConfig) -> LogConfig:
    """One topic's settings as its logs take them; one object for all topics that share their view."""
    known: LogConfig | None = topic.__dict__.get(_LOG_CONFIG)
    if known is None:
        known = topic.__dict__[_LOG_CONFIG] = _log_config(topic)
    return known


def _log_config(topic: TopicConfig) -> LogConfig:
    return LogConfig(
        max_message_bytes=topic.max_message_bytes,
        max_decompressed_record_bytes=topic.max_decompressed_message_bytes,
        message_timestamp_type=TimestampType(topic.message_timestamp_type),
        message_timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
        message_timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
        compression_type=topic.compression_type,
        compact="compact" in topic.cleanup_policy,
        # What the source deletes is deleted here, and nothing else of a mirrored topic.
        delete="delete" in topic.cleanup_policy and not topic.ottla_mirror,
        # Of a tiered topic nothing goes by itself: what is in the object store as well is deleted by who copied it.
        retention_ms=-1 if topic.remote_storage_enable else topic.retention_ms,
        retention_bytes=-1 if topic.remote_storage_enable else topic.retention_bytes,
        segment_bytes=topic.internal_segment_bytes or topic.segment_bytes,
        segment_ms=topic.segment_ms,
        delete_retention_ms=topic.delete_retention_ms,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        max_compaction_lag_ms=topic.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
        flush_messages=topic.flush_messages,
        flush_bytes=topic.broker.ottla_flush_bytes,
        flush_ms=topic.flush_ms,
        validates_all_records=topic.ottla_records_validate == "all",
    )


def storage_config(broker: BrokerConfig) -> StorageConfig:
    """A broker's settings as its storage engine takes them."""
    return StorageConfig(
        store_layout=StoreLayout(broker.ottla_store_layout),
        memstore_bytes=broker.ottla_memstore_bytes,
        memstore_batches=broker.ottla_memstore_batches,
        memstore_records=broker.ottla_memstore_records,
        inline_write_bytes=broker.ottla_inline_write_bytes,
        run_bytes=broker.ottla_run_bytes,
        segment_bytes=broker.log_segment_bytes,
        segment_index_entries=broker.ottla_segment_index_entries,
        checkpoint_bytes=broker.ottla_checkpoint_bytes,
        tail_cache_bytes=broker.ottla_tail_cache_bytes,
        inline_read_bytes=broker.ottla_inline_read_bytes,
        verify_reads=broker.ottla_verify_reads,
        fd_cache_capacity=broker.ottla_open_files,
        disk_reserve_bytes=broker.ottla_disk_reserve_bytes,
        producer_id_expiration_ms=broker.producer_id_expiration_ms,
        producer_id_expiration_check_interval_ms=broker.producer_id_expiration_check_interval_ms,
        retention_check_interval_ms=broker.log_retention_check_interval_ms,
        cleaner_backoff_ms=broker.log_cleaner_backoff_ms,
        cleaner_dedupe_buffer_bytes=broker.log_cleaner_dedupe_buffer_size,
        cleaner_io_max_bytes_per_second=int(min(broker.log_cleaner_io_max_bytes_per_second, 1 << 62)),
        scrub_bytes_per_second=broker.ottla_scrub_bytes_per_second,
        scrub_interval_ms=broker.ottla_scrub_interval_ms,
        rewrite_dead_ratio=broker.ottla_rewrite_dead_ratio,
        rewrite_mean_run_bytes=broker.ottla_rewrite_mean_run_bytes,
    )
