"""Ottla's own settings."""

from __future__ import annotations

from ottla.kproto.releases import RELEASES
from ottla.metastore.address import check_metadata_address
from ottla.settings.checks import Check, between, one_of, pairs, web_addresses
from ottla.settings.declaration import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    boolean,
    double,
    integer,
    long,
    password,
    string,
    strings,
)


class OttlaSettings:
    """Ottla's own settings."""

    ottla_metadata_store: str = string(
        "sqlite",
        "Where the cluster's metadata is kept: sqlite, a file in the data folder, memory, or etcd://host:port,…/prefix "
        "(etcds:// with TLS).",
        check=Check(check_metadata_address, "sqlite, memory, or etcd://host:port,…/prefix"),
        importance=HIGH,
    )
    ottla_metadata_store_user: str | None = string(
        None, "The user to log in to etcd as, if it has authentication enabled."
    )
    ottla_metadata_store_password: str | None = password("That user's password.")
    ottla_metadata_store_ssl_ca: str | None = string(
        None,
        "A PEM file with the authorities that have signed etcd's certificates; unset: those that the system trusts.",
    )
    ottla_metadata_store_ssl_certificate: str | None = string(
        None, "A PEM file with the certificate that this broker shows to etcd."
    )
    ottla_metadata_store_ssl_key: str | None = string(
        None, "A file with that certificate's private key; unset: it is in the certificate's file."
    )
    ottla_kafka_release: str | None = string(
        None,
        "The release of Apache Kafka that this broker passes for, to test clients against it: later APIs, versions and "
        "features are not offered. Unset: the latest.",
        check=one_of(*RELEASES),
    )
    ottla_log_level: str = string(
        "info",
        "Least severe log lines that are written.",
        check=one_of("debug", "info", "warning", "error", ignore_case=True),
    )
    ottla_log_format: str = string(
        "auto",
        "How log lines are written: console for people, json for programs, auto by whether they go to a terminal.",
        check=one_of("auto", "console", "json", ignore_case=True),
    )
    ottla_http_listen: str | None = string(
        None,
        "Where /metrics, /healthz and /readyz are served, as host:port; port 0 takes a free one, unset is nowhere.",
    )
    ottla_http_security_protocol: str = string(
        "PLAINTEXT",
        "How the HTTP port is reached: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. It is configured as a listener of "
        "the name HTTP (listener.name.http.ssl.keystore.location, …); with SASL users log in as they do with PLAIN.",
        check=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    ottla_http_metrics_token: str | None = password(
        "The bearer token for reading /metrics; unset: everybody may, or users who log in if the port requires that."
    )
    ottla_console_enable: bool = boolean(False, "Serve the web console on the HTTP port.")
    ottla_console_allowed_hosts: tuple[str, ...] = strings(
        (),
        "Names by which browsers may ask for the web console, besides localhost and every IP address.",
    )
    ottla_console_clusters: tuple[str, ...] = strings(
        (),
        "The consoles of other clusters, to which each page of the web console has a link: "
        "staging=https://staging.example:8443,test=http://127.0.0.1:8081.",
        check=web_addresses("name=http://host:port"),
    )
    ottla_console_schema_registry_url: str | None = string(
        None, "The schema registry that the web console asks, as http://host:port; unset: the broker's."
    )
    ottla_console_schema_dir: str | None = string(
        None, "A folder in which the web console finds schemas, as <schema id>.avsc, .json or .proto."
    )
    ottla_console_protobuf_descriptor_set: str | None = string(
        None,
        "A file with the Protobuf types that the web console shows, as protoc --include_imports --descriptor_set_out "
        "writes it. Needs the extra ottla[protobuf].",
    )
    ottla_console_protobuf_types: tuple[str, ...] = strings(
        (),
        "The Protobuf types of topics' values and keys in the web console: orders=shop.Order,orders/key=shop.OrderKey.",
        check=pairs("topic=type"),
    )
    ottla_registry_listeners: str | None = string(
        None,
        "Where the schema registry is served, as host:port; port 0 takes a free one, unset is nowhere. TLS and logins "
        "are those of the HTTP port (ottla.http.security.protocol).",
    )
    ottla_rest_listeners: str | None = string(
        None,
        "Where the REST proxy is served, as host:port; port 0 takes a free one, unset is nowhere. TLS and logins are "
        "those of the HTTP port (ottla.http.security.protocol).",
    )
    ottla_schema_registry_url: str | None = string(
        None,
        "The schema registry that the broker asks for schemas, as http://host:port; unset: its own, if it serves one. "
        "Topics' validation and the web console use it.",
    )
    ottla_metrics_max_partitions: int = integer(
        1000,
        "Partitions, groups and committed offsets that /metrics lists one by one; the rest is in the sums only.",
        check=between(0),
    )
    ottla_metrics_max_client_series: int = integer(
        10_000, "Series of metrics that clients have pushed, kept and listed by /metrics.", check=between(0)
    )
    ottla_loop_hold_warning_ms: float = double(
        0, "Log whatever holds the event loop for longer; 0 does not measure.", importance=LOW
    )
    ottla_memory_budget_bytes: int = long(
        268_435_456,
        "Memory for requests, and as much again for answers; beyond it the broker reads no more from clients.",
        check=between(16_777_216),
        importance=HIGH,
    )
    ottla_request_max_elements: int = integer(
        500_000,
        "Elements of all arrays in a request and its answer; a request with more closes its connection.",
        check=between(10_000),
    )
    ottla_max_in_flight_requests_per_connection: int = integer(
        16, "Requests of one connection that may be under way before reading from it stops.", check=between(1)
    )
    ottla_store_layout: str = string(
        "topic",
        "Which partitions share files: topic, or shared for all topics of the node.",
        check=one_of("topic", "shared"),
    )
    ottla_memstore_bytes: int = integer(
        8_388_608, "Bytes after which a memstore is full and the other one takes over.", check=between(65_536)
    )
    ottla_memstore_batches: int = integer(65_536, "Record batches after which a memstore is full.", check=between(1))
    ottla_memstore_records: int = integer(4_194_304, "Records after which a memstore is full.", check=between(1))
    ottla_inline_write_bytes: int = integer(
        262_144,
        "Blocks up to this size are written on the event loop, larger ones by a worker thread.",
        check=between(0),
        importance=LOW,
    )
    ottla_inline_read_bytes: int = integer(
        67_108_864,
        "Reads up to this size are tried on the event loop first, in short steps.",
        check=between(0),
        importance=LOW,
    )
    ottla_run_bytes: int = integer(
        262_144,
        "Largest run: consecutive batches of one partition that share an index record.",
        check=between(4096),
        importance=LOW,
    )
    ottla_segment_index_entries: int = integer(
        700_000, "Index records after which a segment is sealed.", check=between(1000), importance=LOW
    )
    ottla_checkpoint_bytes: int = long(
        67_108_864,
        "Data after which the recovery point moves, so that no restart scans more.",
        check=between(1_048_576),
    )
    ottla_tail_cache_bytes: int = long(
        33_554_432,
        "Written blocks that stay in memory for readers at the end of the log.",
        check=between(0),
        importance=HIGH,
    )
    ottla_verify_reads: bool = boolean(
        True, "Check the CRC of every batch that is read from a file before it is served."
    )
    ottla_open_files: int = integer(32, "Files of sealed segments that are kept open for readers.", check=between(1))
    ottla_disk_reserve_bytes: int = long(
        16_777_216,
        "Room on the disk that is kept for when it is full: for metadata and for what makes room; 0 keeps none.",
        check=between(0),
    )
    ottla_scrub_bytes_per_second: int = long(
        4_194_304,
        "Rate at which closed data files are read, to find damage before somebody runs into it; 0 reads none.",
        check=between(0),
        update=CLUSTER_WIDE,
    )
    ottla_scrub_interval_ms: int = long(
        604_800_000,
        "How long after one pass over all closed data files the next one begins.",
        check=between(60_000),
        update=CLUSTER_WIDE,
    )
    ottla_rewrite_dead_ratio: float = double(
        0.5, "A sealed segment is rewritten when this share of it is dead.", check=between(0, 1), importance=LOW
    )
    ottla_rewrite_mean_run_bytes: int = integer(
        32_768,
        "A sealed segment whose mean run is shorter is rewritten sorted by partition.",
        check=between(0),
        importance=LOW,
    )
    ottla_flush_bytes: int = long(
        9_223_372_036_854_775_807,
        "Sync a partition to disk after this many bytes, in addition to flush.messages and flush.ms.",
        check=between(1),
    )
    ottla_records_validate: str = string(
        "header",
        "What is checked in a producer's batch: header, or all: every record in it, as in Kafka.",
        check=one_of("header", "all"),
        update=CLUSTER_WIDE,
    )
    ottla_internal_topics_writable: bool = boolean(
        False,
        "Let a client that calls itself __admin_client write to coordinators' topics, as Kafka does: to repair them.",
        update=CLUSTER_WIDE,
    )
