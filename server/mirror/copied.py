"""One partition of a mirror, on the node that leads it, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.server.replica.leader_session import Key, Position

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.server.replica.partition import Partition

_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 5.0
_NO_OFFSET: Final = -1
_ANY_HIGH_WATERMARK: Final = (1 << 63) - 1
"""What a consumer says where a follower says what it shows."""


class CopiedPartition:
    """What is asked of the source for it, in one leader epoch here and one there. After a failure it rests, longer each
    time."""

    __slots__ = ("failures", "leader_epoch", "partition", "rests_until", "source_epoch", "source_id", "source_start")

    def __init__(self, partition: Partition, source_id: UUID, source_epoch: int) -> None:
        assert partition.leader_epoch >= source_epoch, f"clients of {partition!r} would not know epoch {source_epoch}"
        self.partition = partition
        self.source_id = source_id
        self.leader_epoch = partition.leader_epoch
        self.source_epoch = source_epoch
        self.failures = 0
        self.rests_until = 0.0
        #: Where the source's log begins.
        self.source_start = 0

    @property
    def key(self) -> Key:
        """How the source names it."""
        return self.source_id, self.partition.index

    @property
    def name(self) -> str:
        """How people name it."""
        return f"{self.partition.topic}-{self.partition.index}"

    @property
    def is_current(self) -> bool:
        """Whether what the source says still counts."""
        return self.partition.mirrors(self.leader_epoch)

    @property
    def position(self) -> Position:
        """Up to where it has what the source has."""
        log = self.partition.log
        return Position(self.source_epoch, log.log_end_offset, log.latest_epoch, _NO_OFFSET, _ANY_HIGH_WATERMARK)

    def is_same(self, other: CopiedPartition) -> bool:
        """Whether both ask for the same."""
        return (
            self.partition is other.partition
            and self.key == other.key
            and self.leader_epoch == other.leader_epoch
            and self.source_epoch == other.source_epoch
        )

    def fail(self) -> float:
        """Count a failure; returns the seconds to leave it for."""
        self.failures += 1
        return min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * (1 << min(self.failures - 1, 10)))
