"""Tiered storage: what Ottla needs to know, and what Kafka's plug-ins do, of which most has no effect here."""

from __future__ import annotations

from ottla.settings.checks import Check, between
from ottla.settings.declaration import CLUSTER_WIDE, HIGH, LOW, boolean, double, integer, long, string
from ottla.settings.types import INT64_MAX
from ottla.tiers.address import check_remote_url


class RemoteStorageSettings:
    """Tiered storage: what Ottla needs to know, and what Kafka's plug-ins do, of which most has no effect here."""

    ottla_remote_url: str | None = string(
        None,
        "Where the older parts of tiered topics are kept: s3://bucket/prefix, gs://bucket/prefix, az://container/"
        "prefix or file:///path; credentials come from the environment. Unset: no topic can be tiered (docs/tiers.md).",
        check=Check(check_remote_url, "s3://…, gs://…, az://… or file:///…"),
        importance=HIGH,
    )
    ottla_remote_cache_bytes: int = long(
        1_073_741_824,
        "Room on the disk for what was read from the object store, in the node's folder.",
        check=between(0),
    )
    ottla_remote_request_timeout_ms: int = integer(
        30_000, "Longest wait for one answer of the object store.", check=between(100)
    )
    ottla_remote_sweep_interval_ms: int = long(
        3_600_000,
        "How often the object store is searched for what nobody needs any more.",
        check=between(1000),
        importance=LOW,
    )
    ottla_remote_snapshot_interval_ms: int = long(
        60_000,
        "How often the metadata, committed offsets and schemas are copied to the object store, if they have changed.",
        check=between(100),
        importance=LOW,
    )
    remote_log_storage_system_enable: bool = boolean(False, "Turn tiered storage on.", in_use=False)
    remote_fetch_max_wait_ms: int = integer(
        500, "Longest wait for a read from remote storage.", check=between(1), update=CLUSTER_WIDE
    )
    remote_list_offsets_request_timeout_ms: int = long(
        30_000,
        "Longest wait for an offset looked up in remote storage.",
        check=between(1),
        update=CLUSTER_WIDE,
    )
    remote_log_index_file_cache_total_size_bytes: int = long(
        1_073_741_824,
        "Bytes of remote index files kept locally.",
        check=between(1),
        importance=LOW,
        update=CLUSTER_WIDE,
        in_use=False,
    )
    remote_log_index_file_cache_ttl_ms: int = long(
        900_000,
        "How long remote index files are kept locally.",
        check=between(-1),
        importance=LOW,
        internal=True,
        in_use=False,
    )
    remote_log_manager_copier_thread_pool_size: int = integer(
        10, "Threads that copy segments to remote storage.", check=between(1), update=CLUSTER_WIDE, in_use=False
    )
    remote_log_manager_copy_max_bytes_per_second: int = long(
        INT64_MAX, "Bytes a second copied to remote storage.", check=between(1), update=CLUSTER_WIDE
    )
    remote_log_manager_copy_quota_window_num: int = integer(
        11, "Windows that the copy rate is averaged over.", check=between(1), in_use=False
    )
    remote_log_manager_copy_quota_window_size_seconds: int = integer(
        1, "Seconds of one window of the copy rate.", check=between(1), in_use=False
    )
    remote_log_manager_expiration_thread_pool_size: int = integer(
        10, "Threads that delete remote segments.", check=between(1), update=CLUSTER_WIDE, in_use=False
    )
    remote_log_manager_fetch_max_bytes_per_second: int = long(
        INT64_MAX, "Bytes a second read from remote storage.", check=between(1), update=CLUSTER_WIDE, in_use=False
    )
    remote_log_manager_fetch_quota_window_num: int = integer(
        11, "Windows that the read rate is averaged over.", check=between(1), in_use=False
    )
    remote_log_manager_fetch_quota_window_size_seconds: int = integer(
        1, "Seconds of one window of the read rate.", check=between(1), in_use=False
    )
    remote_log_manager_follower_thread_pool_size: int = integer(
        2, "Threads that follow remote segments of other leaders.", check=between(1), update=CLUSTER_WIDE, in_use=False
    )
    remote_log_manager_task_interval_ms: int = long(
        30_000, "How often remote storage tasks run.", check=between(1), importance=LOW
    )
    remote_log_manager_task_retry_backoff_max_ms: int = long(
        30_000,
        "Longest pause before a remote storage task is tried again.",
        check=between(1),
        importance=LOW,
        internal=True,
        in_use=False,
    )
    remote_log_manager_task_retry_backoff_ms: int = long(
        500,
        "First pause before a remote storage task is tried again.",
        check=between(1),
        importance=LOW,
        internal=True,
        in_use=False,
    )
    remote_log_manager_task_retry_jitter: float = double(
        0.2, "Random share added to those pauses.", check=between(0, 0.5), importance=LOW, internal=True, in_use=False
    )
    remote_log_manager_thread_pool_size: int = integer(
        2, "Threads of the remote storage scheduler.", check=between(1), in_use=False
    )
    remote_log_metadata_custom_metadata_max_bytes: int = integer(
        128,
        "Longest note that a remote storage plug-in may attach to a segment.",
        check=between(0),
        importance=LOW,
        in_use=False,
    )
    remote_log_metadata_manager_class_name: str = string(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Class that keeps remote segment metadata.",
        in_use=False,
    )
    remote_log_metadata_manager_class_path: str | None = string(None, "Where that class is found.", in_use=False)
    remote_log_metadata_manager_impl_prefix: str = string(
        "rlmm.config.", "Prefix of that class's own settings.", in_use=False
    )
    remote_log_metadata_manager_listener_name: str | None = string(
        None, "Listener through which that class reaches the broker.", in_use=False
    )
    remote_log_reader_max_pending_tasks: int = integer(
        100, "Reads from remote storage that may wait.", check=between(1), in_use=False
    )
    remote_log_reader_threads: int = integer(
        10, "Threads that read from remote storage.", check=between(1), update=CLUSTER_WIDE, in_use=False
    )
    remote_log_storage_manager_class_name: str | None = string(
        None, "Class that stores segments remotely.", in_use=False
    )
    remote_log_storage_manager_class_path: str | None = string(None, "Where that class is found.", in_use=False)
    remote_log_storage_manager_impl_prefix: str = string(
        "rsm.config.", "Prefix of that class's own settings.", in_use=False
    )
