"""Quotas, metrics, policies and what else an operator turns."""

from __future__ import annotations

from ottla.settings.checks import NO_EMPTY_VALUES, between
from ottla.settings.declaration import CLUSTER_WIDE, LOW, integer, java_class, long, string, strings


class OperationSettings:
    """Quotas, metrics, policies and what else an operator turns."""

    quota_window_num: int = integer(
        11, "Windows that a client quota's rate is averaged over.", check=between(1), importance=LOW
    )
    quota_window_size_seconds: int = integer(
        1, "Seconds of one window of a client quota.", check=between(1), importance=LOW
    )
    controller_quota_window_num: int = integer(
        11, "Windows that the rate of topic changes is averaged over.", check=between(1), importance=LOW
    )
    controller_quota_window_size_seconds: int = integer(
        1, "Seconds of one window of the rate of topic changes.", check=between(1), importance=LOW
    )
    replication_quota_window_num: int = integer(
        11, "Windows that a replication quota's rate is averaged over.", check=between(1), importance=LOW
    )
    replication_quota_window_size_seconds: int = integer(
        1, "Seconds of one window of a replication quota.", check=between(1), importance=LOW
    )
    alter_log_dirs_replication_quota_window_num: int = integer(
        11,
        "Windows that the rate of moves between data folders is averaged over.",
        check=between(1),
        importance=LOW,
        in_use=False,
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = integer(
        1,
        "Seconds of one window of the rate of moves between data folders.",
        check=between(1),
        importance=LOW,
        in_use=False,
    )
    client_quota_callback_class: str | None = java_class(
        None, "Class that decides client quotas in Kafka.", importance=LOW, in_use=False
    )
    alter_config_policy_class_name: str | None = java_class(
        None, "Class that may forbid config changes in Kafka.", importance=LOW, in_use=False
    )
    create_topic_policy_class_name: str | None = java_class(
        None, "Class that may forbid new topics in Kafka.", importance=LOW, in_use=False
    )
    config_providers: tuple[str, ...] = strings(
        (), "Classes that look config values up elsewhere in Kafka.", importance=LOW, update=CLUSTER_WIDE, in_use=False
    )
    kafka_metrics_polling_interval_secs: int = integer(
        10, "How often Kafka's older metrics reporters run.", check=between(1), importance=LOW, in_use=False
    )
    kafka_metrics_reporters: tuple[str, ...] = strings(
        (), "Kafka's older metrics reporters.", importance=LOW, in_use=False
    )
    metric_reporters: tuple[str, ...] = strings(
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Classes that report metrics in Kafka.",
        check=NO_EMPTY_VALUES,
        importance=LOW,
        update=CLUSTER_WIDE,
        in_use=False,
    )
    metrics_num_samples: int = integer(
        2, "Samples that Kafka's metrics keep.", check=between(1), importance=LOW, in_use=False
    )
    metrics_recording_level: str = string("INFO", "How detailed Kafka's metrics are.", importance=LOW, in_use=False)
    metrics_sample_window_ms: int = long(
        30_000, "Length of a sample of Kafka's metrics.", check=between(1), importance=LOW, in_use=False
    )
    telemetry_max_bytes: int = integer(
        1_048_576, "Longest telemetry that a client may push.", check=between(1), importance=LOW
    )
