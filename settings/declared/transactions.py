"""Transactions, producer ids and the share coordinator's state."""

from __future__ import annotations

from ottla.settings.checks import between
from ottla.settings.declaration import CLUSTER_WIDE, HIGH, LOW, boolean, integer, short


class TransactionSettings:
    """Transactions, producer ids and the share coordinator's state."""

    transaction_max_timeout_ms: int = integer(
        900_000, "Longest transaction timeout that a producer may ask for.", check=between(1), importance=HIGH
    )
    transaction_state_log_num_partitions: int = integer(
        50, "Partitions of the transaction state topic; fixed once it exists.", check=between(1), importance=HIGH
    )
    transaction_state_log_replication_factor: int = short(
        3,
        "Replicas of the transaction state topic; a smaller cluster takes what it has.",
        check=between(1),
        importance=HIGH,
    )
    transaction_state_log_min_isr: int = integer(
        2,
        "In-sync replicas that the transaction state topic needs; a smaller cluster takes what it has.",
        check=between(1),
        importance=HIGH,
    )
    transaction_state_log_segment_bytes: int = integer(
        104_857_600, "Segment size of the transaction state topic.", check=between(1), importance=HIGH
    )
    transaction_state_log_load_buffer_size: int = integer(
        5_242_880,
        "Bytes read at a time when transaction state is loaded.",
        check=between(1),
        importance=HIGH,
        in_use=False,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "How often timed-out transactions are looked for.", check=between(1), importance=LOW
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "How often expired transactional ids are looked for.", check=between(1), importance=LOW
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Check with the coordinator that a partition belongs to the transaction before records enter it.",
        importance=LOW,
        update=CLUSTER_WIDE,
        in_use=False,
    )
    transaction_two_phase_commit_enable: bool = boolean(
        False,
        "Allow transactions that take part in an outer two-phase commit and never time out.",
        importance=LOW,
        in_use=False,
    )
    transactional_id_expiration_ms: int = integer(
        604_800_000, "An unused transactional id is forgotten after this long.", check=between(1), importance=HIGH
    )
    producer_id_expiration_ms: int = integer(
        86_400_000,
        "An unused producer's sequence numbers are forgotten after this long.",
        check=between(1),
        importance=LOW,
        update=CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = integer(
        600_000,
        "How often expired producers are looked for.",
        check=between(1),
        importance=LOW,
        internal=True,
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        20,
        "Pause before a coordinator that still ends a producer's last transaction is asked again for the next one.",
        check=between(1),
        importance=HIGH,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        100,
        "How long a produce request waits for the end of the producer's last transaction before it is refused.",
        check=between(0),
        importance=HIGH,
    )
    share_coordinator_append_linger_ms: int = integer(
        -1,
        "How long Kafka's share coordinator gathers writes; Ottla's group commit needs no timer.",
        check=between(-1),
        in_use=False,
    )
    share_coordinator_cached_buffer_max_bytes: int = integer(
        1_048_588,
        "Largest write buffer that Kafka's share coordinator keeps.",
        check=between(524_288),
        update=CLUSTER_WIDE,
        in_use=False,
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = integer(
        300_000,
        "How often idle share state is written as a snapshot.",
        check=between(1),
        importance=LOW,
        internal=True,
    )
    share_coordinator_load_buffer_size: int = integer(
        5_242_880, "Bytes read at a time when share state is loaded.", check=between(1), importance=HIGH, in_use=False
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = integer(
        500, "Updates of share state between two snapshots.", check=between(0, 500)
    )
    share_coordinator_state_topic_compression_codec: int = integer(
        0, "Codec number of the share state topic's batches.", importance=HIGH, in_use=False
    )
    share_coordinator_state_topic_min_isr: int = short(
        2,
        "In-sync replicas that the share state topic needs; a smaller cluster takes what it has.",
        check=between(1),
        importance=HIGH,
    )
    share_coordinator_state_topic_num_partitions: int = integer(
        50, "Partitions of the share state topic; fixed once it exists.", check=between(1), importance=HIGH
    )
    share_coordinator_state_topic_prune_interval_ms: int = integer(
        300_000,
        "How often share state that nobody needs is removed.",
        check=between(1),
        importance=LOW,
        internal=True,
    )
    share_coordinator_state_topic_replication_factor: int = short(
        3, "Replicas of the share state topic; a smaller cluster takes what it has.", check=between(1), importance=HIGH
    )
    share_coordinator_state_topic_segment_bytes: int = integer(
        104_857_600, "Segment size of the share state topic.", check=between(1), importance=HIGH
    )
    share_coordinator_threads: int = integer(
        1, "Share coordinator threads in Kafka; an Ottla node is one event loop.", check=between(1), in_use=False
    )
    share_coordinator_write_timeout_ms: int = integer(
        5000, "How long a write of share state waits for the replicas.", check=between(1), importance=HIGH, in_use=False
    )
