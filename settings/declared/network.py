"""Listeners, sockets, connections and how requests are read from them."""

from __future__ import annotations

from ottla.settings.checks import CONNECTION_OVERRIDES, between, one_of
from ottla.settings.declaration import CLUSTER_WIDE, HIGH, LOW, integer, long, string, strings
from ottla.settings.types import INT32_MAX


class NetworkSettings:
    """Listeners, sockets, connections and how requests are read from them."""

    listeners: tuple[str, ...] = strings(
        ("PLAINTEXT://127.0.0.1:9092",),
        "Addresses to listen on, as NAME://host:port; port 0 takes a free one.",
        importance=HIGH,
    )
    advertised_listeners: tuple[str, ...] | None = strings(
        None, "Addresses that clients are told to connect to; unset: the same as listeners.", importance=HIGH
    )
    listener_security_protocol_map: str = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name speaks.",
        importance=LOW,
    )
    inter_broker_listener_name: str | None = string(
        None, "Name of the listener that brokers use among themselves; unset: the first one."
    )
    security_inter_broker_protocol: str = string(
        "PLAINTEXT",
        "Security protocol among brokers if no listener name is given for them.",
        check=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        in_use=False,
    )
    early_start_listeners: tuple[str, ...] | None = strings(
        None,
        "Listeners to open before authorization data is loaded; Ottla opens all of them when it is ready.",
        importance=HIGH,
        in_use=False,
    )
    socket_listen_backlog_size: int = integer(
        50, "Longest queue of connections that the kernel keeps until they are accepted.", check=between(1)
    )
    # Kafka has 102,400 for both: more wake-ups than it is worth (docs/decisions/0045), and too little for a long link.
    socket_receive_buffer_bytes: int = integer(
        -1,
        "Receive buffer of a client socket (SO_RCVBUF); -1 leaves it to the system.",
        importance=HIGH,
    )
    socket_send_buffer_bytes: int = integer(
        -1,
        "Send buffer of a client socket (SO_SNDBUF); -1 leaves it to the system.",
        importance=HIGH,
    )
    socket_request_max_bytes: int = integer(
        104_857_600,
        "Longest request that is read; a longer one closes its connection.",
        check=between(1),
        importance=HIGH,
    )
    max_connections: int = integer(
        INT32_MAX, "Most connections open on the broker at one time.", check=between(0), update=CLUSTER_WIDE
    )
    max_connections_per_ip: int = integer(
        INT32_MAX, "Most connections open from one address at one time.", check=between(0), update=CLUSTER_WIDE
    )
    max_connections_per_ip_overrides: str = string(
        "",
        "Exceptions to max.connections.per.ip, as host:count pairs.",
        check=CONNECTION_OVERRIDES,
        update=CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = integer(
        INT32_MAX, "Most new connections accepted in a second.", check=between(0), update=CLUSTER_WIDE
    )
    connections_max_idle_ms: int = long(600_000, "A connection without a request for this long is closed.")
    connections_max_reauth_ms: int = long(
        0, "Longest life of a SASL session before the client must authenticate again; 0 is forever."
    )
    connection_failed_authentication_delay_ms: int = integer(
        100,
        "How long a failed authentication waits for its answer, to slow guessing down.",
        check=between(0),
        importance=LOW,
    )
    queued_max_requests: int = integer(
        500,
        "Requests that may wait in the broker before it stops reading.",
        check=between(1),
        importance=HIGH,
        in_use=False,
    )
    queued_max_request_bytes: int = long(
        -1,
        "Bytes of requests that may wait before the broker stops reading; -1 leaves it to ottla.memory.budget.bytes.",
        in_use=False,
    )
    request_timeout_ms: int = integer(
        30_000,
        "How long the broker waits for the answer to a request that it sends itself.",
        importance=HIGH,
        in_use=False,
    )
    num_network_threads: int = integer(
        3,
        "Threads for sockets in Kafka; an Ottla node is one event loop.",
        check=between(1),
        importance=HIGH,
        update=CLUSTER_WIDE,
        in_use=False,
    )
    num_io_threads: int = integer(
        8,
        "Threads for requests in Kafka; an Ottla node is one event loop.",
        check=between(1),
        importance=HIGH,
        update=CLUSTER_WIDE,
        in_use=False,
    )
    background_threads: int = integer(
        10,
        "Threads for housekeeping in Kafka; Ottla runs it on the event loop and its worker threads.",
        check=between(1),
        importance=HIGH,
        update=CLUSTER_WIDE,
        in_use=False,
    )
    socket_connection_setup_timeout_ms: int = long(
        10_000, "How long the broker waits for a connection that it opens, at first.", in_use=False
    )
    socket_connection_setup_timeout_max_ms: int = long(
        30_000, "Upper bound of socket.connection.setup.timeout.ms as it grows with failures.", in_use=False
    )
    max_request_partition_size_limit: int = integer(
        2000, "Most partitions answered in one DescribeTopicPartitions.", check=between(1)
    )
    fetch_max_bytes: int = integer(
        57_671_680, "Most bytes answered to one Fetch, whatever the client asks for.", check=between(1024)
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "Most incremental fetch sessions kept; 0 turns them off.", check=between(0)
    )
    fetch_purgatory_purge_interval_requests: int = integer(
        1000, "Clean-up interval of Kafka's fetch purgatory; Ottla's leaves nothing behind to clean.", in_use=False
    )
    producer_purgatory_purge_interval_requests: int = integer(
        1000, "Clean-up interval of Kafka's produce purgatory; Ottla's leaves nothing behind to clean.", in_use=False
    )
    delete_records_purgatory_purge_interval_requests: int = integer(
        1,
        "Clean-up interval of Kafka's delete-records purgatory; Ottla's leaves nothing behind to clean.",
        in_use=False,
    )
    share_fetch_purgatory_purge_interval_requests: int = integer(
        1000,
        "Clean-up interval of Kafka's share-fetch purgatory; Ottla's leaves nothing behind to clean.",
        in_use=False,
    )
