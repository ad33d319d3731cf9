"""What the coordinator reads in the metadata that consumers embed in the classic protocol."""

import struct
from typing import Final

from ottla.kproto import codec
from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolSubscription

PROTOCOL_TYPE: Final = "consumer"

_VERSION: Final = struct.Struct(">h")


def parse_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """A consumer's subscription; None if the bytes are not one. Of a newer version the known part is read."""
    if len(metadata) < _VERSION.size:
        return None
    (version,) = _VERSION.unpack_from(metadata)
    known = ConsumerProtocolSubscription.VERSIONS
    try:
        return codec.parse(ConsumerProtocolSubscription, min(version, known.highest), metadata, _VERSION.size)
    except DecodeError:
        return None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if the bytes are not one."""
    subscription = parse_subscription(metadata)
    return None if subscription is None else frozenset(subscription.topics)
