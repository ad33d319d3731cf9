"""Making topics."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


def create_topic(client: Client, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    """Create a topic with the cluster's default of replicas; BrokerError if that is refused."""
    asked = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=asked)
    (result,) = client.call_controller(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
    if result.error_code:
        raise BrokerError(result.error_code, result.error_message, what=f"topic {name}")
