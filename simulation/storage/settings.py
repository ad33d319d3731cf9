"""Settings that make rare things common: everything is small, and there is room for fewer topics than there are."""

from __future__ import annotations

from random import Random

from ottla.simulation.storage.engine import INT64_MAX, LogConfig, StorageConfig, StoreLayout

__all__ = ["random_log_config", "random_storage_config"]

_NEVER_MS = 1 << 50


def random_storage_config(rng: Random) -> StorageConfig:
    """A node's settings."""
    return StorageConfig(
        store_layout=rng.choice((StoreLayout.PER_TOPIC, StoreLayout.PER_TOPIC, StoreLayout.SHARED)),
        partitions_per_store=rng.choice((1, 2, 10_000)),
        memstore_bytes=rng.choice((500, 4000)),
        run_bytes=rng.choice((200, 2000)),
        segment_bytes=rng.choice((1500, 6000, 1 << 20)),
        segment_index_entries=rng.choice((8, 700_000)),
        segment_ms=3_600_000,
        checkpoint_bytes=rng.choice((500, 5000, 1 << 20)),
        tail_cache_bytes=rng.choice((0, 2000, 20_000, 1 << 20)),
        inline_write_bytes=rng.choice((0, 0, 300, 1 << 20)),
        inline_read_bytes=rng.choice((0, 0, 1 << 20)),
        fd_cache_capacity=rng.choice((1, 2, 4)),
        rewrite_dead_ratio=rng.choice((0.01, 0.5)),
        cleaner_backoff_ms=rng.choice((50, 500, 15_000)),
        retention_check_interval_ms=rng.choice((100, 1000, 300_000)),
        cleaner_io_max_bytes_per_second=rng.choice((5_000, 100_000, 1 << 26)),
        producer_id_expiration_ms=_NEVER_MS,
        joint_checkpoint_stores=2,
    )


def random_log_config(rng: Random) -> LogConfig:
    """A topic's settings."""
    compact = rng.random() < 0.4
    return LogConfig(
        compact=compact,
        delete=not compact or rng.random() < 0.2,
        retention_ms=rng.choice((-1, -1, 7_200_000)),
        retention_bytes=rng.choice((-1, -1, 3000)),
        delete_retention_ms=rng.choice((0, _NEVER_MS)),
        min_cleanable_dirty_ratio=rng.choice((0.01, 0.5)),
        flush_messages=rng.choice((1, 5, INT64_MAX, INT64_MAX)),
        flush_ms=rng.choice((INT64_MAX, INT64_MAX, 50, 1000)),
    )
