"""The node's identity and roles, the metadata quorum, brokers and their sessions."""

from __future__ import annotations

from ottla.settings.checks import any_of, between
from ottla.settings.declaration import HIGH, LOW, boolean, integer, long, string, strings
from ottla.settings.types import INT64_MAX


class ClusterSettings:
    """The node's identity and roles, the metadata quorum, brokers and their sessions."""

    node_id: int = integer(
        1,
        "Id of this node in its cluster; -1: the one in its data folder, or else the lowest free one.",
        check=between(-1),
        importance=HIGH,
    )
    broker_id: int = integer(-1, "Older name of node.id; used if node.id is absent.", importance=HIGH, in_use=False)
    broker_rack: str | None = string(
        None, "Rack or zone of this broker; replicas are spread over racks and clients may read in theirs."
    )
    process_roles: tuple[str, ...] = strings(
        ("broker", "controller"),
        "Roles of the process in KRaft; an Ottla node is always both broker and controller.",
        check=any_of("broker", "controller"),
        importance=HIGH,
        in_use=False,
    )
    broker_heartbeat_interval_ms: int = integer(2000, "How often a broker renews its session.")
    broker_session_timeout_ms: int = integer(9000, "A broker whose session was not renewed for this long is fenced.")
    initial_broker_registration_timeout_ms: int = integer(
        60_000, "How long a starting broker tries to register before it gives up.", in_use=False
    )
    controlled_shutdown_enable: bool = boolean(True, "Hand leadership over before stopping.")
    unstable_api_versions_enable: bool = boolean(
        False, "Offer API versions that Kafka has not released.", importance=HIGH, internal=True, in_use=False
    )
    unstable_feature_versions_enable: bool = boolean(
        False, "Allow feature levels that Kafka has not released.", importance=HIGH, internal=True, in_use=False
    )
    server_max_startup_time_ms: int = long(
        INT64_MAX,
        "Longest time that a start may take before the process gives up.",
        check=between(0),
        internal=True,
        in_use=False,
    )
    controller_listener_names: tuple[str, ...] = strings(
        (),
        "Listeners of the KRaft controller in a file of Kafka's, which are left out: Ottla keeps metadata in a store.",
        importance=HIGH,
    )
    controller_quorum_voters: tuple[str, ...] = strings(
        (),
        "Members of the KRaft quorum; Ottla keeps metadata in a store, not in a quorum of its own.",
        importance=HIGH,
        in_use=False,
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = strings(
        (), "Where to find the KRaft quorum.", importance=HIGH, in_use=False
    )
    controller_quorum_auto_join_enable: bool = boolean(
        False, "Join the KRaft quorum without being asked.", importance=LOW, in_use=False
    )
    controller_quorum_append_linger_ms: int = integer(
        25, "How long the KRaft leader gathers writes.", check=between(0), in_use=False
    )
    controller_quorum_election_backoff_max_ms: int = integer(
        1000, "Longest pause between KRaft elections.", check=between(0), importance=HIGH, in_use=False
    )
    controller_quorum_election_timeout_ms: int = integer(
        1000, "How long a KRaft candidate waits for votes.", check=between(0), importance=HIGH, in_use=False
    )
    controller_quorum_fetch_max_bytes: int = integer(
        1_048_576, "Most bytes of one fetch of the KRaft log.", check=between(1), importance=LOW, in_use=False
    )
    controller_quorum_fetch_snapshot_max_bytes: int = integer(
        1_048_576, "Most bytes of one fetch of a KRaft snapshot.", check=between(1), importance=LOW, in_use=False
    )
    controller_quorum_fetch_timeout_ms: int = integer(
        2000,
        "How long a KRaft follower goes without its leader before it stands for election.",
        check=between(0),
        importance=HIGH,
        in_use=False,
    )
    controller_quorum_request_timeout_ms: int = integer(
        2000, "How long a KRaft member waits for an answer.", check=between(0), in_use=False
    )
    controller_quorum_retry_backoff_ms: int = integer(
        20, "Pause before a KRaft request is tried again.", check=between(0), importance=LOW, in_use=False
    )
    controller_socket_timeout_ms: int = integer(
        30_000, "Socket timeout from the KRaft controller to brokers.", in_use=False
    )
    controller_performance_always_log_threshold_ms: int = long(
        2000, "Controller events slower than this are always logged.", check=between(0), internal=True, in_use=False
    )
    controller_performance_sample_period_ms: int = long(
        60_000, "How often the controller's slowest events are logged.", check=between(100), internal=True, in_use=False
    )
    metadata_log_dir: str | None = string(
        None, "Folder of the KRaft log; Ottla keeps metadata under log.dirs.", importance=HIGH, in_use=False
    )
    metadata_log_max_record_bytes_between_snapshots: int = long(
        20_971_520, "Bytes of KRaft log between two snapshots.", check=between(1), importance=HIGH, in_use=False
    )
    metadata_log_max_snapshot_interval_ms: int = long(
        3_600_000, "Longest time between two KRaft snapshots.", check=between(0), importance=HIGH, in_use=False
    )
    metadata_log_segment_bytes: int = integer(
        1_073_741_824, "Size of a segment of the KRaft log.", check=between(8_388_608), importance=HIGH, in_use=False
    )
    metadata_log_segment_ms: int = long(
        604_800_000, "Age at which a segment of the KRaft log is rolled.", importance=HIGH, in_use=False
    )
    metadata_max_idle_interval_ms: int = integer(
        500, "How often an idle KRaft leader writes a no-op.", check=between(0), importance=LOW, in_use=False
    )
    metadata_max_retention_bytes: int = long(
        104_857_600, "Most bytes of KRaft log and snapshots kept.", importance=HIGH, in_use=False
    )
    metadata_max_retention_ms: int = long(
        604_800_000, "How long KRaft log and snapshots are kept.", importance=HIGH, in_use=False
    )
    internal_metadata_delete_delay_millis: int = long(
        60_000, "How long deleted KRaft files stay on disk.", importance=LOW, internal=True, in_use=False
    )
    internal_metadata_log_segment_bytes: int | None = integer(
        None, "Segment size of the KRaft log, for tests.", importance=LOW, internal=True, in_use=False
    )
    internal_metadata_max_batch_size_in_bytes: int = integer(
        8_388_608, "Most bytes of one batch in the KRaft log.", importance=LOW, internal=True, in_use=False
    )
