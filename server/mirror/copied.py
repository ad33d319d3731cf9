"""One partition of a mirror, on the node that leads it, and its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.replica.following.followed_log import FollowedLog
from ottla.replica.following.leader_session import Key, Position
from ottla.runtime.backoff import Backoff

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.replica.partition import Partition

_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 5.0
_NO_OFFSET: Final = -1
_ANY_HIGH_WATERMARK: Final = (1 << 63) - 1
"""The high watermark in a consumer's fetch; a follower names its own there."""


class CopiedPartition(FollowedLog):
    """A partition as it is fetched from the source, in one leader epoch here and one there."""

    __slots__ = ("_source_epoch", "source_id", "source_start")

    def __init__(self, partition: Partition, source_id: UUID, source_epoch: int) -> None:
        assert partition.leader_epoch >= source_epoch, f"clients of {partition!r} would not know epoch {source_epoch}"
        super().__init__(partition, Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS))
        self.source_id = source_id
        self._source_epoch = source_epoch
        #: The start offset of the source's log.
        self.source_start = 0

    @property
    def key(self) -> Key:
        return self.source_id, self.partition.index

    @property
    def upstream_epoch(self) -> int:
        return self._source_epoch

    @property
    def is_current(self) -> bool:
        return self.partition.mirrors(self.leader_epoch)

    @property
    def offset(self) -> int:
        return self.partition.log.log_end_offset

    @property
    def position(self) -> Position:
        """Up to where it has what the source has."""
        return Position(
            self.upstream_epoch, self.offset, self.partition.log.latest_epoch, _NO_OFFSET, _ANY_HIGH_WATERMARK
        )

    def source_begins_at(self, offset: int) -> None:
        """The source's log begins there now."""
        self.source_start = offset

    def is_same(self, other: CopiedPartition) -> bool:
        """Whether both ask for the same."""
        return (
            self.partition is other.partition
            and self.key == other.key
            and self.leader_epoch == other.leader_epoch
            and self.upstream_epoch == other.upstream_epoch
        )
