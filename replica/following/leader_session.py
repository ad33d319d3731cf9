"""A follower's side of a fetch session with a leader (KIP-227; Kafka's FetchSessionHandler).

The leader keeps what was asked of each partition, so that a request names only those of which something is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto.messages.data.fetch import FetchPartition, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

_NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_MAX_EPOCH: Final = (1 << 31) - 1

Key = tuple["UUID", int]


class Position(NamedTuple):
    """What a follower says of one partition: the epoch it follows in, where its log ends, what it shows."""

    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int
    high_watermark: int


class LeaderSession:
    """What the leader was told last. One request is under way at a time: `ask`, then `answered` or `lost`."""

    def __init__(self, max_partition_bytes: int) -> None:
        self.session_id = _NO_SESSION
        self.epoch = _FIRST_EPOCH
        self._max_partition_bytes = max_partition_bytes
        self._told: dict[Key, Position] = {}

    def position(self, key: Key) -> Position | None:
        """What the leader goes by for a partition; None if it is not in the session."""
        return self._told.get(key)

    def ask(self, positions: Mapping[Key, Position], gone: set[Key]) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """The topics of the next request: what is new of partitions, and what the leader is to leave out from now on.

        Without a session everything is named.
        """
        told = self._told
        gone = {key for key in gone if told.pop(key, None) is not None}
        changed = {key: it for key, it in positions.items() if told.get(key) != it}
        told.update(changed)
        if self.epoch == _FIRST_EPOCH:
            return self._topics(told), []
        forgotten: dict[UUID, ForgottenTopic] = {}
        for topic_id, index in gone:
            if (topic_id, index) not in told:
                forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        return self._topics(changed), list(forgotten.values())

    def answered(self, session_id: int) -> None:
        """The request was answered: the session goes on, or there is none and the next request names everything."""
        if session_id == _NO_SESSION:
            self.lost()
            return
        self.session_id = session_id
        self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def lost(self) -> None:
        """The leader knows nothing of the session any more: the next request begins another one."""
        self.session_id, self.epoch = _NO_SESSION, _FIRST_EPOCH

    def _topics(self, positions: Mapping[Key, Position]) -> list[FetchTopic]:
        topics: dict[UUID, FetchTopic] = {}
        for (topic_id, index), position in positions.items():
            topics.setdefault(topic_id, FetchTopic(topic_id=topic_id)).partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self._max_partition_bytes,
                    high_watermark=position.high_watermark,
                )
            )
        return list(topics.values())
