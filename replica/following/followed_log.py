"""A log that follows another one: what a fetcher knows of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replica.following.leader_session import Key, Position
    from ottla.replica.partition import Partition
    from ottla.runtime.backoff import Backoff


class FollowedLog(ABC):
    """A partition in one leader epoch here and one there. After a failure it backs off, longer each time."""

    __slots__ = ("backoff", "is_broken", "leader_epoch", "partition")

    def __init__(self, partition: Partition, backoff: Backoff) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.backoff = backoff
        #: Whether it was logged that the log cannot take what comes, and nothing came in since.
        self.is_broken = False

    def succeeded(self) -> None:
        """Something came in, or nothing was to come: the next failure is the first one again."""
        self.backoff.reset()
        self.is_broken = False

    def breaks(self) -> bool:
        """The log cannot take what comes. True the first time since something came in."""
        was_broken, self.is_broken = self.is_broken, True
        return not was_broken

    @property
    def name(self) -> str:
        """How people name it."""
        return f"{self.partition.topic}-{self.partition.index}"

    @property
    @abstractmethod
    def key(self) -> Key:
        """How the upstream names it."""

    @property
    @abstractmethod
    def upstream_epoch(self) -> int:
        """The upstream's leader epoch, as far as it is known here."""

    @property
    @abstractmethod
    def is_current(self) -> bool:
        """Whether what the upstream says still counts: nothing is done to the log otherwise."""

    @property
    def may_be_asked_for(self) -> bool:
        """Whether a fetch may say where the log ends."""
        return self.is_current

    @property
    @abstractmethod
    def offset(self) -> int:
        """The first offset that is fetched."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """What a fetch says of it."""
