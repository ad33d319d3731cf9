"""Making and deleting topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.kproto.messages.topics.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState

_FIRST_VERSION_BY_NAME_OR_ID: Final = 6


def create_topic(client: Client, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    """Create a topic with the cluster's default of replicas; BrokerError if that is refused."""
    asked = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=asked)
    (result,) = client.call_controller(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics
    if result.error_code:
        raise BrokerError(result.error_code, result.error_message, what=f"topic {name}")


def delete_topics(client: Client, names: Sequence[str], timeout_ms: int = 30_000) -> list[DeletableTopicResult]:
    """Delete topics; what came of each, as the broker says it. Brokers before Kafka 2.8 know topics by name alone."""
    connection = client.controller()
    if connection.version(ApiKey.DELETE_TOPICS) >= _FIRST_VERSION_BY_NAME_OR_ID:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    results: list[DeletableTopicResult] = connection.call(request).responses
    return results
