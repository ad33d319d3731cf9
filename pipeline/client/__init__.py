"""A small blocking client for Spark's driver and executors: it finds topics, looks up offsets and reads partitions.

It is only a client: everything goes through Kafka's protocol, so it reads from Apache Kafka as it does from Ottla.
"""

from ottla.pipeline.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from ottla.pipeline.client.connection import Connection
from ottla.pipeline.client.fetcher import Fetched, OffsetOutOfRangeError, PartitionFetcher
from ottla.pipeline.client.settings import ClientSettings, parse_bootstrap_servers

__all__ = [
    "EARLIEST",
    "LATEST",
    "ClientSettings",
    "Cluster",
    "Connection",
    "Fetched",
    "OffsetOutOfRangeError",
    "PartitionFetcher",
    "TopicPartition",
    "parse_bootstrap_servers",
]
