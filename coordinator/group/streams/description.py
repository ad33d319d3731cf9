"""The description of a streams group's topology (KIP-1331), for people who look at the group.

Kafka hands it to a plugin. Here it is kept in the group's topology record, as a tagged field that other readers pass
over: it moves with the group, survives what the group survives, and goes when the group goes.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto import codec
from ottla.kproto.messages.groups.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from ottla.kproto.schema import TaggedField
from ottla.runtime.backoff import pause_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SIZE_BYTES: Final = 256 * 1024
"""Of a description. The topology that it is kept with takes up to as much again and more of a record's 1 MiB."""


class NodeType(IntEnum):
    """The type of a topology's node; the numbers are those of the messages."""

    SOURCE = 1
    PROCESSOR = 2
    SINK = 3


class DescriptionStatus(IntEnum):
    """The status of the description in StreamsGroupDescribe."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


_TAG: Final = 10_000
"""Far from those that Kafka's schema counts up from 0."""
_VERSION: Final = 0

_FIRST_PAUSE_SECONDS: Final = 30.0
_LONGEST_PAUSE_SECONDS: Final = 3600.0


def build_description(description: TopologyDescription) -> bytes:
    """As it is kept: the request that brought it, without the names of the group and of the member."""
    return codec.build(StreamsGroupTopologyDescriptionUpdateRequest(topology_description=description), _VERSION)


def parse_description(data: bytes) -> TopologyDescription:
    """Raises DecodeError."""
    return codec.parse(StreamsGroupTopologyDescriptionUpdateRequest, _VERSION, data).topology_description


def tagged(description: bytes | None) -> tuple[TaggedField, ...]:
    """The description as a field of the topology record."""
    return () if description is None else (TaggedField(_TAG, description),)


def find_description(fields: Iterable[TaggedField]) -> bytes | None:
    """The description among a record's unknown fields, not looked at yet; None if there is none."""
    return next((field.data for field in fields if field.tag == _TAG), None)


class Asking(NamedTuple):
    """How often members were asked for the description, and when the next one may be, on Trio's clock: one at a time,
    and seldom where none comes.
    """

    attempts: int = 0
    next_at: float = float("-inf")

    def asked(self, now: float) -> Asking:
        """After a member was asked."""
        pause = pause_seconds(self.attempts, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        return Asking(self.attempts + 1, now + pause)
