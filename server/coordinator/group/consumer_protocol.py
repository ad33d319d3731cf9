"""What the coordinator reads in the metadata that consumers embed in the classic protocol."""

from typing import Final

from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolSubscription, parse_consumer_protocol

PROTOCOL_TYPE: Final = "consumer"


def parse_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """A consumer's subscription; None if the bytes are not one. Of a newer version, what is known here is read."""
    try:
        return parse_consumer_protocol(ConsumerProtocolSubscription, metadata)
    except DecodeError:
        return None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if the bytes are not one."""
    subscription = parse_subscription(metadata)
    return None if subscription is None else frozenset(subscription.topics)
