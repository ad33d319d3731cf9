"""A small blocking client for Spark's driver and executors: it finds topics, looks up offsets and reads partitions.

It is only a client: everything goes through Kafka's protocol, so it reads from Apache Kafka as it does from Ottla.
"""

from ottla.client.offsets import EARLIEST, LATEST, TopicPartition
from ottla.pipeline.client.cluster import Cluster
from ottla.pipeline.client.fetcher import Fetched, OffsetOutOfRangeError, PartitionFetcher
from ottla.pipeline.client.settings import ClientSettings, parse_bootstrap_servers, security_of

__all__ = [
    "EARLIEST",
    "LATEST",
    "ClientSettings",
    "Cluster",
    "Fetched",
    "OffsetOutOfRangeError",
    "PartitionFetcher",
    "TopicPartition",
    "parse_bootstrap_servers",
    "security_of",
]
