"""A share partition on the node that leads the partition: its life, its locks, and what of it is being stored."""

from __future__ import annotations

import logging
import math
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    FencedShareLeaderError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    UninitializedShareError,
    UnknownSharePartitionError,
)
from ottla.coordinator.share.state import UNINITIALIZED_START_OFFSET, DeliveryState, StateChange
from ottla.replica.errors import NotLeaderError, ReplicaError
from ottla.replica.offset_lookup import NO_OFFSET, OffsetSpec, find_offset
from ottla.replica.partition import Isolation
from ottla.runtime.errors import kept
from ottla.runtime.stages import finish
from ottla.runtime.supervisor import Tasks
from ottla.runtime.time_slice import TimeSlice
from ottla.server.share.config import duration_ms
from ottla.server.share.in_flight import InFlight
from ottla.server.share.records import Lock, Transition
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.coordinator.share.persister import Persister
    from ottla.coordinator.share.state import SharePartitionKey, ShareState, StateBatch
    from ottla.replica.partition import Partition
    from ottla.runtime.deadlines import Deadlines, Late
    from ottla.server.share.config import ShareConfig, ShareConfigs
    from ottla.server.share.dead_letters import DeadLetters
    from ottla.server.share.records import Acknowledgement, Acquired, Span
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

#: After these somebody else writes the state, or nobody does: it is read again, if at all.
_FENCING = (
    FencedStateEpochError,
    FencedShareLeaderError,
    UninitializedShareError,
    UnknownSharePartitionError,
    GroupIdNotFoundError,
)
_STATES = frozenset(map(int, DeliveryState))


def _require_sense(state: ShareState) -> None:
    """Raise CoordinatorError for what cannot be anybody's state: the coordinator stores whatever it is told."""
    for batch in state.batches:
        if batch.first_offset > batch.last_offset or batch.delivery_state not in _STATES:
            raise CoordinatorError(f"the stored state makes no sense: {batch}")


class Life(Enum):
    """The life of a share partition, and the transitions between its states."""

    LOADING = "loading"  # its state is being read: ACTIVE or ENDED
    ACTIVE = "active"  # records are given and taken back: ENDED
    ENDED = "ended"  # it could not be read, was fenced, or is not led here any more: the end


class _TimedLock(Lock):
    """A lock that ends by itself after so many seconds."""

    __slots__ = ("_cell", "_deadlines", "_share")

    def __init__(self, share: SharePartition, member_id: str, deadlines: Deadlines, seconds: float) -> None:
        super().__init__(member_id)
        self._share = share
        self._deadlines = deadlines
        self._cell: list[Late] | None = deadlines.add(self, trio.current_time() + seconds)

    def free(self) -> None:
        if self._cell is not None:
            self._deadlines.leave(self._cell)
            self._cell = None

    def expire(self) -> None:
        self._cell = None
        self._share.lock_expired(self)


class ShareServices(NamedTuple):
    """What the share partitions of a node have in common."""

    configs: ShareConfigs
    persister: Persister
    dead_letters: DeadLetters
    clock: Clock
    deadlines: Deadlines
    nursery: Tasks


class SharePartitionOwner(Protocol):
    """Hears of what becomes of its share partitions."""

    def share_changed(self, share: SharePartition) -> None:
        """Fetches that wait may look again."""

    def share_ended(self, share: SharePartition) -> None:
        """It can serve no more."""

    def dead_letters_ended(self, share: SharePartition) -> None:
        """The task has ended that wrote its dead letters."""


class SharePartition:
    """One group's share of a partition that this node leads, in one leader epoch and one state epoch.

    Its owner creates it, runs `load` and calls `end`. Every change of a record's state is stored by the persister
    before it counts, except the end of a lock: that counts at once, and is stored as soon as it can be.

    Dead letters are written by one task at a time, at least once: until the change of state is stored, the next leader
    writes them again. `is_writing_dead_letters` while the task runs.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        services: ShareServices,
        owner: SharePartitionOwner,
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.life = Life.LOADING
        #: Why it has ended, for those who waited for it.
        self.error: Exception | None = None
        #: On Trio's clock: when its state had been read.
        self.active_since = math.inf
        #: One fetch at a time reads for it.
        self.is_fetching = False
        self.expired_locks = 0
        self.is_writing_dead_letters = False
        self._owner = owner
        self._term = partition.term
        self._configs = services.configs
        self._persister = services.persister
        self._dead_letters = services.dead_letters
        self._clock = services.clock
        self._deadlines = services.deadlines
        self._nursery = services.nursery
        self._state_epoch = -1
        self._in_flight: InFlight

    def __repr__(self) -> str:
        return f"<{self.key.group_id} {self.partition.topic}-{self.partition.index} {self.life.value}>"

    @property
    def _config(self) -> ShareConfig:
        """The group's settings as they are now."""
        return self._configs.of_share_group(self.key.group_id)

    @property
    def is_current(self) -> bool:
        """Whether this node still leads the partition in the term for which this was made."""
        partition = self.partition
        return partition.is_leader and partition.term == self._term and partition.leader_epoch == self.leader_epoch

    @property
    def is_active(self) -> bool:
        """Whether records are given and taken back."""
        return self.life is Life.ACTIVE

    @property
    def in_flight(self) -> InFlight:
        """The records that are held or may be; only once it is active."""
        assert self.life is not Life.LOADING
        return self._in_flight

    @property
    def in_flight_count(self) -> int:
        """How many offsets are in flight; none while it is not loaded."""
        return self._in_flight.count if self.life is Life.ACTIVE else 0

    # Its life

    async def load(self) -> None:
        """Read its state; ends it if that cannot be. Where nothing is stored, `share.auto.offset.reset` decides."""
        try:
            state = await self._persister.read(self.key, self.leader_epoch)
            _require_sense(state)
            start_offset = state.start_offset
            if start_offset == UNINITIALIZED_START_OFFSET:
                start_offset = await self._first_offset()
            self._state_epoch = state.state_epoch
            if self.life is Life.LOADING:
                self._begin(start_offset, state)
                if state.start_offset == UNINITIALIZED_START_OFFSET:
                    # What is delivered from here on must not be passed by if the next leader looks for a beginning.
                    await self._store(())
                self._activate()
        except (CoordinatorError, ReplicaError, StorageError) as error:
            self.end(error)

    def _begin(self, start_offset: int, state: ShareState) -> None:
        config = self._config
        self._in_flight = InFlight(
            start_offset,
            state.batches,
            max_records=config.max_records,
            max_delivery_count=config.max_delivery_count,
            new_lock=self._new_lock,
        )
        self._move_start()

    def _move_start(self) -> None:
        """What was deleted is nobody's any more. Of a tiered log a new leader may not know yet where it begins."""
        if self.partition.knows_log_start:
            self._in_flight.move_start(self.partition.log_start_offset)

    def _activate(self) -> None:
        if self.life is Life.LOADING:
            self.life = Life.ACTIVE
            self.active_since = trio.current_time()
            self._owner.share_changed(self)
            self._write_dead_letters_soon()

    async def _first_offset(self) -> int:
        reset = self._config.auto_offset_reset
        back_ms = duration_ms(reset)
        if back_ms is not None:
            found = await self._find(self._clock.time_ms() - back_ms)
            return await self._find(OffsetSpec.LATEST) if found == NO_OFFSET else found
        return await self._find(OffsetSpec.EARLIEST if reset == "earliest" else OffsetSpec.LATEST)

    async def _find(self, timestamp_ms: int) -> int:
        found = await finish(
            find_offset(
                self.partition, timestamp_ms, isolation=Isolation.HIGH_WATERMARK, current_leader_epoch=self.leader_epoch
            )
        )
        return found.offset

    def end(self, error: Exception) -> None:
        """It serves no more: everyone who waits is answered, and every lock is forgotten. Once it has ended, nothing
        happens.
        """
        if self.life is Life.ENDED:
            return
        was_active = self.life is Life.ACTIVE
        self.life = Life.ENDED
        self.error = kept(error)
        if was_active:
            for lock in {run.lock for run in self._in_flight.runs() if run.lock is not None}:
                lock.free()
        self._owner.share_ended(self)
        self._owner.share_changed(self)

    def require_active(self) -> None:
        """Raise unless records can be given and taken back."""
        if not self.is_current:
            self.end(NotLeaderError(f"{self!r} is not led here any more"))
        if self.life is not Life.ACTIVE:
            raise self.error or NotLeaderError(f"{self!r} does not serve yet")

    # Records

    def can_acquire(self) -> bool:
        """Whether a fetch may bring something now."""
        if self.life is not Life.ACTIVE or self.is_fetching or not self.is_current:
            return False
        self._move_start()
        self._follow_config()
        return self._in_flight.can_acquire()

    def begin_fetch(self) -> None:
        """Nobody else fetches from it until `end_fetch`."""
        self.is_fetching = True

    def end_fetch(self) -> None:
        """End a fetch: its records are acquired, or it was given up."""
        self.is_fetching = False

    def _follow_config(self) -> ShareConfig:
        """The settings of the group as they are now, which are obeyed from now on."""
        config = self._config
        self._in_flight.follow_config(
            max_records=config.max_records,
            max_delivery_count=config.max_delivery_count,
            has_dead_letters=bool(config.dead_letter_topic),
        )
        return config

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        spans: Sequence[Span],
        aborted: Iterable[Span],
        *,
        max_records: int,
        batch_size: int,
        is_strict: bool,
    ) -> list[Acquired]:
        """Give a member what it may have of what was fetched, `aborted` batches aside. Raises as `require_active`."""
        self.require_active()
        acquired = self._in_flight.acquire(
            member_id, fetch_offset, spans, max_records=max_records, batch_size=batch_size, is_strict=is_strict
        )
        for span in aborted:
            self._in_flight.archive_aborted(span.first, span.last)
            acquired = [part for each in acquired for part in each.without(span)]
        return acquired

    async def acknowledge(self, member_id: str, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Take back what a member held, as it says; returns when that is stored.

        Raises ShareError, and then nothing has changed; or CoordinatorError, and then it is the member's still.
        """
        self.require_active()
        may_renew = self._follow_config().may_renew
        transition, time_slice = Transition(), TimeSlice()
        steps = self._in_flight.acknowledging(transition, member_id, acknowledgements, may_renew=may_renew)
        try:
            for _ in steps:
                if time_slice.is_over:
                    await time_slice.maybe_yield()
                    self.require_active()
        except BaseException:
            steps.close()
            self._owner.share_changed(self)  # A lock may have ended meanwhile.
            raise
        await self._settle(transition)

    async def release(self, member_id: str) -> None:
        """Take back all that a member holds: its session has ended. Raises as `acknowledge` does."""
        self.require_active()
        self._follow_config()
        await self._settle(self._in_flight.release(member_id))

    async def _settle(self, transition: Transition) -> None:
        """Store a transition. Shielded: it is stored or rolled back even if the request that waits is cancelled."""
        if not transition.runs:
            return
        is_stored = False
        try:
            with trio.CancelScope(shield=True):
                await self._store(transition.state_batches())
            is_stored = True
        except _FENCING as error:
            self.end(error)
            raise
        finally:
            self._in_flight.complete(transition, stored=is_stored)
            self._owner.share_changed(self)
            self._write_dead_letters_soon()

    async def _store(self, batches: Sequence[StateBatch]) -> None:
        in_flight = self._in_flight
        change = StateChange(
            self._state_epoch,
            self.leader_epoch,
            in_flight.start_offset,
            in_flight.delivery_complete_count(),
            batches,
        )
        await self._persister.write(self.key, change)

    # Locks

    def _new_lock(self, member_id: str) -> Lock:
        return _TimedLock(self, member_id, self._deadlines, self._config.lock_duration_ms / 1000)

    def lock_expired(self, lock: Lock) -> None:
        """A member has not acknowledged in time: what it held is given to others."""
        if self.life is not Life.ACTIVE:
            return
        self.expired_locks += 1
        self._follow_config()
        expired = self._in_flight.expire(lock)
        if expired:
            self._nursery.start_soon(self._store_expired, expired)
        self._owner.share_changed(self)

    async def _store_expired(self, expired: Sequence[StateBatch]) -> None:
        try:
            await self._store(expired)
        except _FENCING as error:
            self.end(error)
        except CoordinatorError as error:
            # The next change that is stored says nothing of these: they are delivered once more if the leader is lost.
            logger.warning("%r: the end of a lock is not stored: %s", self, error)
        self._write_dead_letters_soon()

    # Dead letters

    def _write_dead_letters_soon(self) -> None:
        """Begin to write what is to go to the dead-letter queue, unless that is under way."""
        if self.life is Life.ACTIVE and not self.is_writing_dead_letters and self._in_flight.dead():
            self.is_writing_dead_letters = True
            self._nursery.start_soon(self._write_dead_letters)

    async def _write_dead_letters(self) -> None:
        try:
            while self.life is Life.ACTIVE and (dead := self._in_flight.dead()):
                written = await self._dead_letters.write(self, dead)
                if self.life is Life.ACTIVE:
                    await self._archive_dead(written)
        finally:
            self.is_writing_dead_letters = False
            self._owner.dead_letters_ended(self)

    async def _archive_dead(self, spans: Iterable[tuple[int, int]]) -> None:
        """They are written, or could not be. It counts at once: what is lost of it is only written again."""
        archived = [batch for first, last in spans for batch in self._in_flight.archive_dead(first, last)]
        self._owner.share_changed(self)
        try:
            await self._store(archived)
        except _FENCING as error:
            self.end(error)
        except CoordinatorError as error:
            logger.warning("%r: that dead letters are written is not stored: %s", self, error)
