"""The topics in what consumers of the classic protocol tell each other through the group: subscriptions, assignments.

To a broker they are just bytes, with two exceptions: it reads them when a group moves to the consumer protocol, and
when offsets are deleted. Bytes that are neither are left alone, and so is what assignors add for themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ProtocolError
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

if TYPE_CHECKING:
    from ottla.proxy.filters.filter import Call

Rename = Callable[[str], str]

_CONSUMERS: Final = "consumer"
_VERSION_BYTES: Final = 2


def rename_in_request(request: Any, call: Call, rename: Rename) -> None:
    """Rename the topics in a JoinGroup or SyncGroup; `call` remembers whether they are of consumers."""
    if call.key is ApiKey.JOIN_GROUP:
        call.notes[rename_in_request] = request.protocol_type == _CONSUMERS
        if request.protocol_type == _CONSUMERS:
            for protocol in request.protocols:
                protocol.metadata = subscription(protocol.metadata, rename)
    elif call.key is ApiKey.SYNC_GROUP:
        # Older versions do not say which type the group has.
        call.notes[rename_in_request] = request.protocol_type in (_CONSUMERS, None)
        if call.notes[rename_in_request]:
            for member in request.assignments:
                member.assignment = assignment(member.assignment, rename)


def rename_in_response(response: Any, call: Call, rename: Rename) -> None:
    """Rename the topics in an answer to one of these, and in descriptions of groups."""
    is_of_consumers = call.notes.get(rename_in_request, False)
    if call.key is ApiKey.JOIN_GROUP and is_of_consumers:
        for member in response.members:
            member.metadata = subscription(member.metadata, rename)
    elif call.key is ApiKey.SYNC_GROUP and is_of_consumers:
        response.assignment = assignment(response.assignment, rename)
    elif call.key is ApiKey.DESCRIBE_GROUPS:
        for group in response.groups:
            if group.protocol_type == _CONSUMERS:
                for member in group.members:
                    member.member_metadata = subscription(member.member_metadata, rename)
                    member.member_assignment = assignment(member.member_assignment, rename)


def subscription(data: bytes, rename: Rename) -> bytes:
    """A subscription with other names of topics."""

    def change(message: ConsumerProtocolSubscription) -> None:
        message.topics = [rename(topic) for topic in message.topics]
        for owned in message.owned_partitions:
            owned.topic = rename(owned.topic)

    return _changed(ConsumerProtocolSubscription, data, change)


def assignment(data: bytes, rename: Rename) -> bytes:
    """An assignment with other names of topics."""

    def change(message: ConsumerProtocolAssignment) -> None:
        for assigned in message.assigned_partitions:
            assigned.topic = rename(assigned.topic)

    return _changed(ConsumerProtocolAssignment, data, change)


def _changed(cls: Any, data: bytes, change: Callable[[Any], None]) -> bytes:
    """Whatever follows the fields that are known here stays as it is."""
    head = bytes(data[:_VERSION_BYTES])
    version = min(int.from_bytes(head, "big", signed=True), cls.VERSIONS.highest)
    if len(head) < _VERSION_BYTES or version < 0:
        return data
    try:
        message, end = codec.parse_prefix(cls, version, data, _VERSION_BYTES)
        if codec.build(message, version) != bytes(data[_VERSION_BYTES:end]):
            return data
        change(message)
        return head + codec.build(message, version) + bytes(data[end:])
    except ProtocolError:
        return data
