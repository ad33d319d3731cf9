"""The metadata that consumers embed in the classic protocol, as far as the coordinator reads it."""

from typing import Final

from ottla.kproto import codec
from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records.consumer_protocol import (
    VERSION_SIZE,
    ConsumerProtocolSubscription,
    parse_consumer_protocol,
)

PROTOCOL_TYPE: Final = "consumer"


def parse_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """A consumer's subscription; None if the bytes are not one. Of a newer version, what is known here is read."""
    try:
        return parse_consumer_protocol(ConsumerProtocolSubscription, metadata)
    except DecodeError:
        return None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if they cannot be read.

    Read as version 0, which every version begins with: some clients (kafka-go, sarama-cluster) name a version whose
    other fields they leave out. Kafka's counterpart is ClassicGroup.computeSubscribedTopics.
    """
    try:
        subscription, _ = codec.parse_prefix(ConsumerProtocolSubscription, 0, metadata, VERSION_SIZE)
    except DecodeError:
        return None
    return frozenset(subscription.topics)
