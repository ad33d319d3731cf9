"""How far a follower of a partition has come, as its leader learns it from the follower's fetches."""

from __future__ import annotations

from typing import Final

UNKNOWN_OFFSET: Final = -1


class FollowerProgress:
    """The leader's knowledge of one follower (Kafka's `Replica`). Times in milliseconds since the epoch.

    A follower's fetch from an offset says that it has stored everything below it.
    """

    __slots__ = (
        "broker_epoch",
        "fetches",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_offset_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: int = 0) -> None:
        #: Of the registration of the process that fetches (KIP-903); -1 if it does not say.
        self.broker_epoch = -1
        #: How often it has fetched.
        self.fetches = 0
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = caught_up_ms
        self.last_fetch_ms = 0
        self.leader_end_offset_at_last_fetch = UNKNOWN_OFFSET

    def record_fetch(
        self, offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int, broker_epoch: int = -1
    ) -> bool:
        """Take note of a fetch from `offset`; True if the follower's log has moved.

        It is caught up as of now if it has all of the leader's log, and as of its last fetch if it has what the
        leader's log held then: a follower that always fetches at once stays in sync however fast the leader appends.
        """
        self.fetches += 1
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.leader_end_offset_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        moved = offset != self.log_end_offset or log_start_offset != self.log_start_offset
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_offset_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch
        return moved

    def fetches_again(self, offset: int, log_start_offset: int, now_ms: int, broker_epoch: int) -> bool:
        """`record_fetch` for a fetch from the leader's end that says the same as the last one; False if it says
        something else.
        """
        if (offset, log_start_offset, broker_epoch) != (self.log_end_offset, self.log_start_offset, self.broker_epoch):
            return False
        self.fetches += 1
        if now_ms > self.last_caught_up_ms:
            self.last_caught_up_ms = now_ms
        self.last_fetch_ms = now_ms
        return True

    def has_left(self) -> None:
        """It left the in-sync set: until it fetches again, nobody waits for it."""
        self.last_fetch_ms = 0

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether it may stay in the in-sync set (`replica.lag.time.max.ms`)."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= max_lag_ms
